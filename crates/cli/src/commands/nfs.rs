//! `shoal nfs`: a volume for clients of NFS version 3.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use gates::control;
use gates::nfs::{Network, NfsError, NfsGate, NfsOptions};
use serde_json::json;

use crate::cache_file::CacheArgs;
use crate::commands::mount::{check_volume, host};
use crate::daemon::{self, DaemonArgs, LISTENING};
use crate::gate;
use crate::output::Output;
use crate::private::LOG_DIR;
use crate::problem::problem;
use crate::process::{self, Started};
use crate::remote::{ConnectionArgs, Target, explain_join, real_world};
use crate::size::Size;

/// Serves a volume through NFS version 3
#[derive(Args)]
#[command(after_help = "\
Returns when the gate answers, and prints the line that mounts it; its daemon logs to /var/log/shoal. --stop ends it.

A volume may have gates on several machines, and mounts too. File handles are the same at all gates. Bytes that a client
has committed (by close or fsync) are visible to every later open of the file, at any gate or mount. A gate that
was killed may be started again at the same address: clients continue, and write again what they had not
committed. The gate has no file locks: mount with nolock.

NFS trusts a client's claims about its users. So the gate serves only this machine by default, and only programs of root:
clients must come from ports below 1024, as the kernels' clients do. --insecure admits others. To serve other machines,
name the clients with --allow. Their root is treated as nobody (65534) unless --no-root-squash is given.

Examples:
  shoal nfs main
  mount -t nfs -o vers=3,tcp,nolock,port=2049,mountport=2049,mountproto=tcp 127.0.0.1:/main /mnt/nfs
  shoal nfs main --listen 10.0.0.1:2049 --allow 10.0.0.0/24
  nfs-ls 'nfs://127.0.0.1/main/?nfsport=2049&mountport=2049'
  shoal nfs main --stop")]
pub(crate) struct NfsArgs {
    /// The volume
    volume: String,
    /// Where to listen, HOST:PORT [default: 127.0.0.1:2049]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Allowed clients: an address, or a range such as 10.0.0.0/24; may be given several times
    #[arg(long, value_name = "CLIENTS")]
    allow: Vec<Network>,
    /// Admits clients from any port: every user of an allowed machine can then be any user
    #[arg(long)]
    insecure: bool,
    /// Allows no changes
    #[arg(long)]
    read_only: bool,
    /// Treats the clients' root as root
    #[arg(long)]
    no_root_squash: bool,
    /// Most clients at the same time, three quarters of them from one address
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,
    #[command(flatten)]
    cluster: ConnectionArgs,
    /// Memory budget of the gate, a quarter of it for requests in progress; requests that still arrive are not counted
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: Size,
    #[command(flatten)]
    cache: CacheArgs,
    /// Threads that serve requests
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Ends the volume's gates on this machine, after making everything stable; with --listen only that one
    #[arg(long)]
    stop: bool,
    /// Stays in the foreground and logs to standard error
    #[arg(long)]
    foreground: bool,
    /// Log of the background daemon [default: /var/log/shoal/nfs-VOLUME-PORT.log]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// The default address of a gate.
const LISTEN_DEFAULT: &str = "127.0.0.1:2049";
impl NfsArgs {
    fn listen(&self) -> &str {
        self.listen.as_deref().unwrap_or(LISTEN_DEFAULT)
    }
}

pub(crate) fn run(args: &NfsArgs, output: &Output) -> anyhow::Result<()> {
    if args.stop {
        return gate::stop_all("nfs", &args.volume, args.listen.as_deref(), &args.cluster, output);
    }
    let options = options(args);
    NfsGate::check(&options).map_err(|error| explain(error, args.listen()))?;
    if args.foreground {
        return serve(args, &options);
    }
    let target = args.cluster.target()?;
    check_volume(&args.volume, &target)?;
    let log = args.log.clone().unwrap_or_else(|| log_path(args));
    let mut started = start(args, &target, &log)?;
    let at = gate::wait_until_it_answers(&mut started, output)?;
    let address: SocketAddr = at.parse().context("the gate listens at no address")?;
    let pid = started.daemon().map(|daemon| daemon.pid());
    let (linux, macos) = mount_lines(&address, &args.volume);
    let document = json!({
        "volume": args.volume, "address": address.to_string(), "pid": pid, "log": log.to_string_lossy(),
        "mount": { "linux": linux, "macos": macos },
    });
    output.answer(&document, || {
        format!(
            "volume `{}` is served by NFS at {address}; mount it with\n  {linux}\nor, on macOS,\n  {macos}",
            args.volume
        )
    });
    Ok(())
}

fn options(args: &NfsArgs) -> NfsOptions {
    NfsOptions {
        listen: args.listen().to_owned(),
        allow: args.allow.clone(),
        insecure: args.insecure,
        read_only: args.read_only,
        root_squash: !args.no_root_squash,
        connections: args.connections.into(),
        threads: args.threads.into(),
    }
}

fn log_path(args: &NfsArgs) -> PathBuf {
    let port = args.listen().rsplit(':').next().unwrap_or_default();
    Path::new(LOG_DIR).join(format!("nfs-{}-{port}.log", args.volume))
}

/// The commands that mount the volume on Linux and macOS.
fn mount_lines(address: &SocketAddr, volume: &str) -> (String, String) {
    let port = address.port();
    let host = match address.ip() {
        ip if ip.is_unspecified() => host(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let ports = format!("port={port},mountport={port}");
    (
        format!("mount -t nfs -o vers=3,tcp,nolock,{ports},mountproto=tcp {host}:/{volume} DIR"),
        format!("mount_nfs -o vers=3,tcp,resvport,locallocks,{ports} {host}:/{volume} DIR"),
    )
}

fn start(args: &NfsArgs, target: &Target, log: &Path) -> anyhow::Result<Started> {
    let mut words: Vec<OsString> = vec!["nfs".into(), "--foreground".into(), "--detached".into()];
    words.extend(target.words());
    words.extend(["--listen".into(), args.listen().into()]);
    for network in &args.allow {
        words.extend(["--allow".into(), network.to_string().into()]);
    }
    let flags = [
        (args.insecure, "--insecure"),
        (args.read_only, "--read-only"),
        (args.no_root_squash, "--no-root-squash"),
    ];
    words.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, word)| word.into()));
    words.extend(["--connections".into(), args.connections.to_string().into()]);
    words.extend(args.cache.words()?);
    words.extend(["--threads".into(), args.threads.to_string().into()]);
    words.extend(["--memory".into(), args.memory.0.to_string().into()]);
    words.extend(args.daemon.words());
    words.extend([OsString::from("--"), args.volume.clone().into()]);
    process::start("nfs", &words, log)
}

/// Serves the volume in this process until it is told to stop.
fn serve(args: &NfsArgs, options: &NfsOptions) -> anyhow::Result<()> {
    let stop = daemon::stop_signal()?;
    daemon::begin(&args.daemon, args.memory.0)?;
    let target = args.cluster.target()?;
    let world = real_world()?;
    let mut client = target.client(&args.volume, args.memory, format!("{}:nfs {}", host(), args.listen()));
    client.updates_atime = !args.read_only;
    client.disk_cache = args.cache.prepare(&target)?;
    let gate = NfsGate::start(client, options).map_err(|error| explain(error, args.listen()))?;
    let address = gate.address().to_string();
    let uri = format!("nfs://{address}/{}", args.volume);
    let at = [args.listen().to_owned(), address.clone()];
    let _note = gate::create_run_file("nfs", &args.volume, &target, &uri, &at)?;
    let commands = gate::listen_for_commands(&world, "nfs")?;
    tracing::info!("volume {} by NFS {LISTENING}{address}", args.volume);
    let mount = gate.mount();
    let _ = daemon::run_until_stopped(&world, stop, control::serve(&world, &commands, &mount));
    gate.end().context("the gate ended with bytes that could not be made stable")
}

fn explain(error: NfsError, at: &str) -> anyhow::Error {
    match &error {
        NfsError::Join(error) => explain_join(error),
        NfsError::Listen { error, .. } => daemon::explain_listen(error, at),
        NfsError::Anybody(_) => problem(
            error.to_string(),
            "--allow with the clients' addresses, such as --allow 10.0.0.0/24; or listen at 127.0.0.1",
        ),
        _ => anyhow::Error::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_name_the_way_there() {
        let lines = |text: &str| mount_lines(&text.parse().expect("an address"), "main");
        let (linux, macos) = lines("10.0.0.1:2050");
        assert!(
            linux.contains("port=2050,mountport=2050") && linux.ends_with("10.0.0.1:/main DIR"),
            "{linux}"
        );
        assert!(
            macos.contains("port=2050,mountport=2050") && macos.ends_with("10.0.0.1:/main DIR"),
            "{macos}"
        );
        assert!(lines("[::1]:2049").0.ends_with("[::1]:/main DIR"));
        assert!(!lines("0.0.0.0:2049").0.contains("0.0.0.0"));
    }
}
