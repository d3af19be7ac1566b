//! `shoal nbd`: a block volume, or a file, as a network block device.

use std::ffi::OsString;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::pin::pin;

use anyhow::Context;
use clap::Args;
use futures_util::future::{Either, select};
use gates::control;
use gates::nbd::{Listen, NbdError, NbdGate, NbdOptions};
use serde_json::json;

use crate::commands::mount::{check_volume, host};
use crate::daemon::{self, DaemonArgs, LISTENING};
use crate::gate;
use crate::mountpoint::absolute;
use crate::output::Output;
use crate::private::LOG_DIR;
use crate::problem::problem;
use crate::process::{self, Started};
use crate::remote::{ConnectionArgs, Target, explain_join, real_world};
use crate::run_files;
use crate::size::Size;

/// Exports a block volume, or a file of a volume, as a network block device
#[derive(Args)]
#[command(after_help = "\
Returns when the gate answers, and prints the URI for clients; its daemon logs to /var/log/shoal. --stop ends it.

A block volume may have gates on several machines. While clients use one of them, it holds writes back until a FLUSH;
while they use several, every write is stable before it is answered. When a machine dies, another one's gate has
everything that was flushed, as soon as the dead one's lease has run out (3.5 s). Use --write-through for clients that
reconnect by themselves and do not treat this as a power cut. A file is exported read-only, or by one gate only.

NBD has no authentication and no encryption. So the gate listens at a socket to which only this user can connect. With
--listen, every user of this machine can, and with --allow-remote, every machine.

Examples:
  shoal volume create vm --code 4+2 --block 100G; shoal nbd vm
  qemu-system-x86_64 -drive 'file=nbd+unix:///vm?socket=/run/shoal/nbd-vm.sock,format=raw,if=virtio'
  shoal nbd vm --listen 127.0.0.1:10809        nbd://127.0.0.1:10809/vm
  shoal nbd main --file images/debian.img --read-only
  shoal nbd vm --stop")]
pub(crate) struct NbdArgs {
    /// The volume
    volume: String,
    /// Exports this file of the volume, instead of a block volume
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Allows no writes
    #[arg(long)]
    read_only: bool,
    /// Allows no other gate or mount of the volume meanwhile; always on for a writable file
    #[arg(long)]
    exclusive: bool,
    /// Makes every write stable before it is answered, as if each had FUA
    #[arg(long)]
    write_through: bool,
    /// Listens at HOST:PORT, for all users
    #[arg(long, value_name = "ADDR", conflicts_with = "socket")]
    listen: Option<String>,
    /// Listens at this Unix socket, for this user only [default: nbd-VOLUME.sock in /run/shoal, or in the user's directory]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Allows to listen beyond this machine: everybody who can connect can read and write
    #[arg(long)]
    allow_remote: bool,
    /// Most clients at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    #[command(flatten)]
    cluster: ConnectionArgs,
    /// Memory budget of the gate, without requests in progress: up to 8M for each client, or one larger request
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    memory: Size,
    /// Threads that serve clients; each client is served by one of them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Ends the volume's gates on this machine, after making everything stable; with --listen or --socket only that one
    #[arg(long)]
    stop: bool,
    /// Stays in the foreground and logs to standard error
    #[arg(long)]
    foreground: bool,
    /// Log of the background daemon [default: /var/log/shoal/nbd-VOLUME.log]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub(crate) fn run(args: &NbdArgs, output: &Output) -> anyhow::Result<()> {
    if args.stop {
        let given = args.listen.is_some() || args.socket.is_some();
        let (Listen::Port(at) | Listen::Path(at)) = listen(args)?;
        return gate::stop_all("nbd", &args.volume, given.then_some(at.as_str()), &args.cluster, output);
    }
    if args.foreground {
        return serve(args);
    }
    let target = args.cluster.target()?;
    check_volume(&args.volume, &target)?;
    let log = args.log.clone().unwrap_or_else(|| log_path(&args.volume));
    let mut started = start(args, &target, &log)?;
    let uri = gate::wait_until_it_answers(&mut started, output)?;
    let document = json!({ "volume": args.volume, "uri": uri, "log": log.to_string_lossy() });
    output.answer(&document, || format!("volume `{}` is exported at {uri}", args.volume));
    Ok(())
}

fn log_path(volume: &str) -> PathBuf {
    Path::new(LOG_DIR).join(format!("nbd-{volume}.log"))
}

fn start(args: &NbdArgs, target: &Target, log: &Path) -> anyhow::Result<Started> {
    let mut words: Vec<OsString> = vec!["nbd".into(), "--foreground".into(), "--detached".into()];
    words.extend(target.words());
    if let Some(file) = &args.file {
        words.extend(["--file".into(), file.into()]);
    }
    let flags = [
        (args.read_only, "--read-only"),
        (args.exclusive, "--exclusive"),
        (args.write_through, "--write-through"),
        (args.allow_remote, "--allow-remote"),
    ];
    words.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, word)| word.into()));
    match listen(args)? {
        Listen::Port(at) => words.extend(["--listen".into(), at.into()]),
        Listen::Path(at) => words.extend(["--socket".into(), at.into()]),
    }
    words.extend(["--connections".into(), args.connections.to_string().into()]);
    words.extend(["--threads".into(), args.threads.to_string().into()]);
    words.extend(["--memory".into(), args.memory.0.to_string().into()]);
    words.extend(args.daemon.words());
    words.extend([OsString::from("--"), args.volume.clone().into()]);
    process::start("nbd", &words, log)
}

/// The address at which the gate will listen, in a form that is valid in every process of this machine.
fn listen(args: &NbdArgs) -> anyhow::Result<Listen> {
    let path = match (&args.listen, &args.socket) {
        (Some(at), _) => return Ok(Listen::Port(at.clone())),
        (None, Some(socket)) => absolute(socket)?,
        (None, None) => run_files::shared_socket(&socket_name(args))?,
    };
    Ok(Listen::Path(path.to_str().context("the path of the socket must be UTF-8")?.to_owned()))
}

/// The default name of the socket. Gates of a volume and of its files have different ones.
fn socket_name(args: &NbdArgs) -> String {
    let file = args.file.as_deref().map(|file| file.trim_start_matches('/').replace('/', "-"));
    let file = file.map(|file| format!("-{file}")).unwrap_or_default();
    format!("nbd-{}{file}.sock", args.volume)
}

/// Serves the export in this process until it is told to stop.
fn serve(args: &NbdArgs) -> anyhow::Result<()> {
    let stop = daemon::stop_signal()?;
    daemon::begin(&args.daemon, args.memory.0)?;
    let listen = listen(args)?;
    check_listen(&listen, args.allow_remote)?;
    let target = args.cluster.target()?;
    let world = real_world()?;
    let (Listen::Port(at) | Listen::Path(at)) = &listen;
    let mut client = target.client(&args.volume, args.memory, format!("{}:nbd {at}", host()));
    // Access times of a disk are not useful.
    client.updates_atime = false;
    client.exclusive = args.exclusive || (args.file.is_some() && !args.read_only);
    let options = NbdOptions {
        listen: listen.clone(),
        file: args.file.clone(),
        read_only: args.read_only,
        write_through: args.write_through,
        connections: args.connections,
        threads: args.threads.into(),
    };
    let gate = NbdGate::start(&world, client, &options).map_err(|error| explain(error, at))?;
    let uri = uri(&listen, &gate.address(), args);
    let _note = gate::create_run_file("nbd", &args.volume, &target, &uri, &[at.clone(), gate.address()])?;
    let commands = gate::listen_for_commands(&world, "nbd")?;
    tracing::info!("volume {} {LISTENING}{uri}", args.volume);
    let mount = gate.mount();
    let serving = async {
        match select(pin!(gate.serve()), pin!(control::serve(&world, &commands, &mount))).await {
            Either::Left((served, _)) => served,
            Either::Right(((), _)) => Ok(()),
        }
    };
    let served = daemon::run_until_stopped(&world, stop, serving);
    let ended = gate.end();
    if let Some(Err(lost)) = served {
        return Err(problem(lost.to_string(), "start the gate again"));
    }
    ended.context("the gate ended with bytes that could not be made stable")
}

/// The URI for clients.
fn uri(listen: &Listen, address: &str, args: &NbdArgs) -> String {
    let file = args.file.as_deref().map(|file| format!("/{}", file.trim_start_matches('/')));
    let name = format!("{}{}", args.volume, file.unwrap_or_default());
    match listen {
        Listen::Port(_) => format!("nbd://{address}/{name}"),
        Listen::Path(path) => format!("nbd+unix:///{name}?socket={path}"),
    }
}

/// Refuses an address that other machines can reach, unless --allow-remote is given.
fn check_listen(listen: &Listen, allow_remote: bool) -> anyhow::Result<()> {
    let Listen::Port(at) = listen else { return Ok(()) };
    let addresses = at.to_socket_addrs().map_err(|error| {
        problem(format!("--listen {at} is not an address of this machine: {error}"), "HOST:PORT")
    })?;
    if !allow_remote && addresses.into_iter().any(|address| !address.ip().is_loopback()) {
        let what = format!("will not listen at {at}: whoever can connect could read and write the disk");
        return Err(problem(what, "127.0.0.1, --socket, or --allow-remote in a network that is yours alone"));
    }
    Ok(())
}

fn explain(error: NbdError, at: &str) -> anyhow::Error {
    match &error {
        NbdError::Join(error) => explain_join(error),
        NbdError::Listen { error, .. }
            if at.starts_with('/') && error.kind() == std::io::ErrorKind::AddrInUse =>
        {
            problem(format!("{at} is in use by another process"), "--socket with another path")
        }
        NbdError::Listen { error, .. } => daemon::explain_listen(error, at),
        NbdError::NoBlockVolume(volume) => problem(
            error.to_string(),
            format!("--file PATH for a file of `{volume}`, or `shoal volume create NAME --block SIZE`"),
        ),
        NbdError::BlockVolume(_) => problem(error.to_string(), "the same command without --file"),
        _ => anyhow::Error::new(error),
    }
}
