//! The directory of an embedded cluster: everything that `shoal up` makes is in it.
//!
//! ```text
//! DIR/cluster.json   the options it was made with: bricks, size, code, port
//! DIR/key            the cluster's key, readable by its owner only
//! DIR/meta/          the metadata service's store
//! DIR/bricks/b1 ...  the bricks, sparse files
//! DIR/run/NAME.pid   pid files of running daemons
//! DIR/log/NAME.log   their logs
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use types::wire::Key;
use types::{BrickId, ClusterId, Code};

use crate::private;
use crate::problem::problem;
use crate::process::Daemon;
use crate::size::Size;

/// The options with which an embedded cluster was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// The cluster.
    pub(crate) cluster: ClusterId,
    /// Port of the metadata service on loopback; brick `bN` has the N-th port after it. The ports never change,
    /// because the arbiter recognises a restarted brick by its address.
    pub(crate) port: u16,
    /// Number of bricks.
    pub(crate) bricks: u32,
    /// Bytes of each brick.
    pub(crate) size: Size,
    /// Code of the volume `main`.
    pub(crate) code: Code,
    /// Memory budget of each daemon.
    pub(crate) memory: Size,
    /// Number of metadata servers. The ports of all but the first follow those of the bricks.
    pub(crate) metas: u32,
}

/// The first metadata server; the others are `meta2`, `meta3` and so on.
const FIRST_META: &str = "meta";

/// An embedded cluster's directory.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    dir: PathBuf,
    plan: Plan,
}

/// The default directory of an embedded cluster.
pub(crate) fn default_dir() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/var/lib/shoal");
    }
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    home.join(".local/share/shoal")
}

impl Home {
    /// The cluster in `dir`, if there is one.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Option<Home>> {
        let path = dir.join("cluster.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let plan = serde_json::from_str(&text).ok().as_ref().and_then(Plan::from_json);
        let plan = plan.ok_or_else(|| {
            problem(
                format!("{} is damaged or was written by another version", path.display()),
                "restore the file, or move the directory away and make a new cluster",
            )
        })?;
        let dir = fs::canonicalize(dir).with_context(|| format!("cannot find {}", dir.display()))?;
        Ok(Some(Home { dir, plan }))
    }

    /// The cluster in `dir`. If there is none, an error that says how to make one.
    pub(crate) fn require(dir: &Path) -> anyhow::Result<Home> {
        Home::open(dir)?.ok_or_else(|| {
            problem(
                format!("no cluster lives in {}", dir.display()),
                format!("`shoal up --dir {}`, or --meta ADDR for a cluster elsewhere", dir.display()),
            )
        })
    }

    /// Makes the subdirectories and the key. The directory holds a cluster only after [`Home::commit`].
    pub(crate) fn prepare(dir: &Path, plan: Plan, key: &Key) -> anyhow::Result<Home> {
        make_dirs(dir)?;
        let dir = fs::canonicalize(dir).with_context(|| format!("cannot find {}", dir.display()))?;
        let home = Home { dir, plan };
        write_key(&home.key_path(), key)?;
        Ok(home)
    }

    /// Writes the plan. From here on `dir` holds a cluster.
    pub(crate) fn commit(&self) -> anyhow::Result<()> {
        let path = self.dir.join("cluster.json");
        private::write(&path, &format!("{:#}\n", self.plan.to_json()))
    }

    /// Takes the rights of other users away from its directories, its plan and its key. Its daemons do so for the rest.
    ///
    /// # Errors
    /// Something belongs to somebody else.
    pub(crate) fn secure(&self) -> anyhow::Result<()> {
        make_dirs(&self.dir)?;
        private::secure(&self.dir.join("cluster.json"))?;
        private::secure(&self.key_path())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where the metadata service listens: of several servers, all.
    pub(crate) fn meta_address(&self) -> String {
        self.metas().into_iter().map(|(_, address)| address).collect::<Vec<_>>().join(",")
    }

    /// The metadata servers, by name, and where each listens. The first one begins the cluster.
    pub(crate) fn metas(&self) -> Vec<(String, String)> {
        let address = |port: u32| format!("127.0.0.1:{port}");
        let first = u32::from(self.plan.port);
        let others = (2..=self.plan.metas)
            .map(|n| (format!("{FIRST_META}{n}"), address(first + self.plan.bricks + n - 1)));
        std::iter::once((FIRST_META.to_owned(), address(first))).chain(others).collect()
    }

    /// Where a brick listens.
    pub(crate) fn brick_address(&self, brick: BrickId) -> String {
        format!("127.0.0.1:{}", u32::from(self.plan.port) + brick.0)
    }

    pub(crate) fn key_path(&self) -> PathBuf {
        self.dir.join("key")
    }

    /// The directory of the first metadata server.
    pub(crate) fn meta_dir(&self) -> PathBuf {
        self.dir.join(FIRST_META)
    }

    pub(crate) fn brick_path(&self, brick: BrickId) -> PathBuf {
        self.dir.join("bricks").join(brick.to_string())
    }

    pub(crate) fn log_path(&self, name: &str) -> PathBuf {
        self.dir.join("log").join(format!("{name}.log"))
    }

    pub(crate) fn pid_path(&self, name: &str) -> PathBuf {
        self.dir.join("run").join(format!("{name}.pid"))
    }

    /// Ids of the bricks.
    pub(crate) fn bricks(&self) -> impl Iterator<Item = BrickId> + use<> {
        (1..=self.plan.bricks).map(BrickId)
    }

    /// The running daemon of this name, if it runs.
    pub(crate) fn daemon(&self, name: &str) -> Option<Daemon> {
        Daemon::read(&self.pid_path(name))
    }
}

/// Makes the directories of a cluster, or takes the ones that exist.
fn make_dirs(dir: &Path) -> anyhow::Result<()> {
    private::make_dir(dir)?;
    [FIRST_META, "bricks", "run", "log"].iter().try_for_each(|part| private::make_part(&dir.join(part)))
}

/// Writes a key file that only its owner may read.
pub(crate) fn write_key(path: &Path, key: &Key) -> anyhow::Result<()> {
    let hex: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
    private::write(path, &format!("{hex}\n"))
}

/// Reads a key file.
pub(crate) fn read_key(path: &Path) -> anyhow::Result<Key> {
    let text = fs::read_to_string(path)
        .map_err(|e| problem(format!("cannot read the key file {}: {e}", path.display()), KEY_HINT))?;
    text.parse().map_err(|e| problem(format!("{} is not a key file: {e}", path.display()), KEY_HINT))
}

const KEY_HINT: &str =
    "copy the `key` file that `shoal cluster init` wrote to this machine and name it by --key-file";

impl Plan {
    fn to_json(&self) -> Value {
        json!({
            "cluster": self.cluster.to_string(),
            "port": self.port,
            "bricks": self.bricks,
            "size": self.size.0,
            "code": self.code.to_string(),
            "memory": self.memory.0,
            "metas": self.metas,
        })
    }

    fn from_json(value: &Value) -> Option<Plan> {
        Some(Plan {
            cluster: value["cluster"].as_str()?.parse().ok()?,
            port: u16::try_from(value["port"].as_u64()?).ok()?,
            bricks: u32::try_from(value["bricks"].as_u64()?).ok()?,
            size: Size(value["size"].as_u64()?),
            code: value["code"].as_str()?.parse().ok()?,
            memory: Size(value["memory"].as_u64()?),
            // Clusters of earlier builds have one.
            metas: value["metas"].as_u64().map_or(Some(1), |metas| u32::try_from(metas).ok())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_its_file() {
        let plan = Plan {
            cluster: ClusterId([7; 16]),
            port: 7400,
            bricks: 10,
            size: Size(1 << 30),
            code: "8+2".parse().expect("a code"),
            memory: Size(256 << 20),
            metas: 3,
        };
        assert_eq!(Plan::from_json(&plan.to_json()), Some(plan));
        assert_eq!(Plan::from_json(&json!({})), None);
    }
}
