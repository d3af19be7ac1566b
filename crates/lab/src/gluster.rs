//! GlusterFS on the nodes, to compare: a volume with a brick on each server, and its mounts.
//!
//! Each server has a management daemon of its own. These daemons have fixed places for their files, so each of them runs
//! with other directories mounted there. Nothing of the machine's own GlusterFS is used or changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::cluster::Nodes;
use crate::error::{LabError, Result, doing};
use crate::network::Network;
use crate::node::Program;
use crate::sandbox::SANDBOX_DIR;
use crate::star;

const VOLUME: &str = "files";
/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The words in a mount's log each time it uses another set of translators.
const SWITCHED: &str = "switched to graph";

/// The version of GlusterFS on this machine.
fn version() -> Result<String> {
    let missing = || LabError::Missing { program: "gluster".to_owned(), package: "glusterfs-server" };
    let ran = Command::new("gluster").arg("--version").output().map_err(|_| missing())?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let version = said.lines().next().and_then(|line| line.strip_prefix("glusterfs "));
    version.map(str::to_owned).ok_or_else(missing)
}

/// Measures GlusterFS by `measure`, but in a quick run, or if it is not installed. Returns its version, or why there are no
/// results: that it cannot be measured is a result too.
///
/// # Errors
/// The reason, for people to read.
pub fn measured(is_quick: bool, measure: impl FnOnce() -> Result<()>) -> std::result::Result<String, String> {
    if is_quick {
        // Its daemons alone take the better part of a minute.
        return Err("a quick run leaves it out".to_owned());
    }
    version().and_then(|version| measure().map(|()| version)).map_err(|error| error.to_string())
}

/// How a volume uses its bricks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Each file is on one of them.
    Distributed,
    /// Each file is on all of them, coded; so many of them may fail.
    Dispersed {
        /// Bricks of redundancy.
        redundancy: u32,
    },
    /// Each file is on so many of them. Where the bricks are no multiple of that, the last ones are not used.
    Replicated {
        /// Copies of a file.
        copies: u32,
    },
}

impl Kind {
    /// How many of some servers have a brick.
    fn bricks(self, servers: u32) -> u32 {
        match self {
            Kind::Replicated { copies } => servers - servers % copies.max(1),
            Kind::Distributed | Kind::Dispersed { .. } => servers,
        }
    }

    /// The words for it in the command that makes a volume over so many bricks.
    fn words(self, bricks: u32) -> Vec<String> {
        match self {
            Kind::Distributed => Vec::new(),
            Kind::Dispersed { redundancy } => {
                ["disperse", &bricks.to_string(), "redundancy", &redundancy.to_string()]
                    .map(str::to_owned)
                    .into()
            }
            Kind::Replicated { copies } => ["replica".to_owned(), copies.to_string()].into(),
        }
    }
}

/// A running volume. Dropping it stops it.
pub struct Gluster<'n, N: Nodes + ?Sized = Network> {
    network: &'n N,
    servers: u32,
    dir: PathBuf,
    daemons: Vec<Program>,
    settings: Vec<(String, String)>,
    /// Volumes that were made before this one.
    earlier: u32,
}

impl<'n, N: Nodes + ?Sized> Gluster<'n, N> {
    /// Starts a volume over the first `servers` nodes.
    ///
    /// # Errors
    /// What a daemon or a command said.
    pub fn start(network: &'n N, servers: u32, kind: Kind) -> Result<Gluster<'n, N>> {
        let dir = Path::new(SANDBOX_DIR).join("gluster");
        let (daemons, settings) = (Vec::new(), Vec::new());
        let mut gluster = Gluster { network, servers, dir, daemons, settings, earlier: 0 };
        // Commands and mounts have files there too, which are to leave with the sandbox.
        for place in ["/var/lib/glusterd", "/var/log/glusterfs"] {
            let none = None::<&str>;
            mount(Some("lab"), place, Some("tmpfs"), MsFlags::empty(), none)
                .map_err(doing(format!("mount a tmpfs at {place}")))?;
        }
        ask_no_name_server()?;
        for number in 1..=servers {
            gluster.start_daemon(number)?;
        }
        for number in 1..=servers {
            gluster.wait_for_daemon(number)?;
        }
        for number in 2..=servers {
            gluster.ask(&["peer", "probe", &star::address(number).to_string()])?;
        }
        for number in 1..=servers {
            // Each of them has to be asked: the last ones hear of each other after the first has heard of all.
            wait_until("connect the servers of GlusterFS", || {
                let said = gluster.ask_server(number, &["peer", "status"])?;
                Ok(said.matches("Peer in Cluster (Connected)").count() as u32 + 1 == servers)
            })?;
        }
        gluster.create(kind)?;
        Ok(gluster)
    }

    /// Deletes the volume, which has no mount any more, and makes another one with the usual settings.
    ///
    /// # Errors
    /// What a command said.
    pub fn renew(&mut self, kind: Kind) -> Result<()> {
        self.ask(&["volume", "stop", VOLUME, "force"])?;
        self.ask(&["volume", "delete", VOLUME])?;
        for number in 1..=self.servers {
            let brick = self.brick(number);
            match fs::remove_dir_all(&brick) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(doing(format!("remove {}", brick.display()))(error));
                }
                _ => {}
            }
        }
        self.settings.clear();
        self.earlier += 1;
        self.create(kind)
    }

    fn create(&self, kind: Kind) -> Result<()> {
        let count = kind.bricks(self.servers);
        let mut create: Vec<String> = ["volume", "create", VOLUME].map(str::to_owned).into();
        create.extend(kind.words(count));
        create.extend(["transport", "tcp"].map(str::to_owned));
        create.extend((1..=count).map(|number| {
            let brick = self.brick(number);
            format!("{}:{}", star::address(number), brick.display())
        }));
        create.push("force".to_owned());
        self.ask(&create.iter().map(String::as_str).collect::<Vec<_>>())?;
        self.ask(&["volume", "start", VOLUME]).map(drop)
    }

    /// The directory of a server's brick: another one for each volume.
    fn brick(&self, number: u32) -> PathBuf {
        self.server(number).join(format!("brick{}", self.earlier))
    }

    fn server(&self, number: u32) -> PathBuf {
        self.dir.join(star::name(number))
    }

    fn start_daemon(&mut self, number: u32) -> Result<()> {
        let own = self.server(number);
        for name in ["lib", "log", "run/lab"] {
            let dir = own.join(name);
            fs::create_dir_all(&dir).map_err(doing(format!("make {}", dir.display())))?;
        }
        // The sandbox's files stay in their place below the other /run.
        let script = "mount --rbind \"$1\" \"$0/run/lab\" && mount --rbind \"$0/run\" /run && \
                      mount --bind \"$0/lib\" /var/lib/glusterd && mount --bind \"$0/log\" /var/log/glusterfs && \
                      exec glusterd --no-daemon --log-level WARNING";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&own).arg(SANDBOX_DIR);
        let log = own.join("daemon.log");
        let daemon = self.network.node(number).start("glusterd", &mut command, &log)?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// Waits until a server's daemon answers.
    fn wait_for_daemon(&mut self, number: u32) -> Result<()> {
        let mut daemons = std::mem::take(&mut self.daemons);
        let answers = || self.ask_server(number, &["volume", "list"]).is_ok();
        let waited = daemons[number as usize - 1].wait_until(PATIENCE, answers);
        self.daemons = daemons;
        waited
    }

    /// Runs a command of GlusterFS at the first server. Returns what it said.
    fn ask(&self, words: &[&str]) -> Result<String> {
        self.ask_server(1, words)
    }

    fn ask_server(&self, number: u32, words: &[&str]) -> Result<String> {
        let own = self.server(number);
        let mut command = Command::new("gluster");
        command
            .arg("--mode=script")
            .arg(format!("--glusterd-sock={}", own.join("run/glusterd.socket").display()));
        command.arg(format!("--log-file={}", own.join("commands.log").display())).args(words);
        let said = self.network.node(number).run(&mut command)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Mounts the volume at a node.
    ///
    /// # Errors
    /// What the mount said.
    pub fn mount(&self, node: u32) -> Result<GlusterMount> {
        let dir = self.dir.join(format!("mount{node}-{}", self.earlier));
        fs::create_dir_all(&dir).map_err(doing(format!("make {}", dir.display())))?;
        let (output, log) = (dir.with_extension("out"), dir.with_extension("log"));
        let mut command = Command::new("glusterfs");
        command.arg("--no-daemon").arg(format!("--volfile-server={}", star::address(1)));
        command.arg(format!("--volfile-id={VOLUME}")).arg(format!("--log-file={}", log.display())).arg(&dir);
        let mut program = self.network.node(node).start("glusterfs", &mut command, &output)?;
        let outside = fs::metadata(&self.dir).map_err(doing(format!("look at {}", self.dir.display())))?;
        let is_there = || {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(&dir).is_ok_and(|inside| inside.dev() != outside.dev())
        };
        program.wait_until(PATIENCE, is_there)?;
        Ok(GlusterMount { dir, log, program: Some(program) })
    }

    /// Changes settings of the volume, and waits until its mounts have them.
    ///
    /// # Errors
    /// What the command said, or a mount does not change.
    pub fn set(&mut self, settings: &[(&str, &str)], mounts: &[&GlusterMount]) -> Result<()> {
        let is_set = |key: &str, value: &str| self.settings.iter().any(|(k, v)| k == key && v == value);
        let changes: Vec<(&str, &str)> =
            settings.iter().copied().filter(|(key, value)| !is_set(key, value)).collect();
        if changes.is_empty() {
            return Ok(());
        }
        let before: Vec<usize> = mounts.iter().map(|mount| mount.switches()).collect();
        let mut words = vec!["volume", "set", VOLUME];
        words.extend(changes.iter().flat_map(|(key, value)| [*key, *value]));
        self.ask(&words)?;
        for (key, value) in changes {
            self.settings.retain(|(had, _)| had != key);
            self.settings.push((key.to_owned(), value.to_owned()));
        }
        wait_until("change the translators of GlusterFS", || {
            // A mount changes with the next request that it gets.
            Ok(mounts.iter().zip(&before).all(|(mount, before)| {
                let _ = fs::read_dir(&mount.dir).map(Iterator::count);
                mount.switches() > *before
            }))
        })
    }
}

impl<N: Nodes + ?Sized> Drop for Gluster<'_, N> {
    fn drop(&mut self) {
        // The servers of bricks are no children of the daemons.
        let _ = self.ask(&["volume", "stop", VOLUME, "force"]);
        self.daemons.clear();
    }
}

/// The daemons look their addresses up as if they were names, which takes minutes where no name server can be reached. Without
/// one in the file they ask their own machine, which refuses at once.
fn ask_no_name_server() -> Result<()> {
    let file = Path::new("/etc/resolv.conf");
    if !file.exists() {
        return Ok(());
    }
    let empty = Path::new(SANDBOX_DIR).join("resolv.conf");
    fs::write(&empty, "").map_err(doing(format!("write {}", empty.display())))?;
    let none = None::<&str>;
    mount(Some(&empty), file, none, MsFlags::MS_BIND, none)
        .map_err(doing(format!("mount over {}", file.display())))
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > end {
            return Err(doing(what)(format!("not done after {} s", PATIENCE.as_secs())));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A mount of the volume.
pub struct GlusterMount {
    dir: PathBuf,
    log: PathBuf,
    program: Option<Program>,
}

impl GlusterMount {
    /// Where its files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How often it has used another set of translators.
    fn switches(&self) -> usize {
        fs::read_to_string(&self.log).unwrap_or_default().matches(SWITCHED).count()
    }
}

impl Drop for GlusterMount {
    fn drop(&mut self) {
        let _ = umount2(&self.dir, MntFlags::MNT_DETACH);
        self.program = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_volume_has_its_words() {
        let told = |kind: Kind, servers| (kind.bricks(servers), kind.words(kind.bricks(servers)).join(" "));
        assert_eq!(told(Kind::Distributed, 2), (2, String::new()));
        let coded = Kind::Dispersed { redundancy: 2 };
        assert_eq!(told(coded, 10), (10, "disperse 10 redundancy 2".to_owned()));
        // Three copies of a file on nine bricks: the tenth is no place for a fourth three.
        assert_eq!(told(Kind::Replicated { copies: 3 }, 10), (9, "replica 3".to_owned()));
    }
}
