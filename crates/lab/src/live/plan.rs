//! What a lab is to be, and whether this machine can be that.

use std::fs;
use std::path::Path;
use std::time::Duration;

use layout::topology::Topology;
use serde_json::{Value, json};
use types::{Code, NodeId};

use crate::cluster::{ClusterPlan, Disks};
use crate::error::{Result, doing, refused};
use crate::fabric::{CablePlan, check_kernel};
use crate::star::Link;

/// Least bytes of a brick.
pub const BRICK_MIN: u64 = 64 << 20;
/// Memory budget of each brick, in bytes.
const BRICK_MEMORY: u64 = 64 << 20;
/// Memory budget of the mount, in bytes.
const CLIENT_MEMORY: u64 = 256 << 20;
/// Memory budget of the metadata service, logs, namespaces, in bytes.
const REST_MEMORY: u64 = 256 << 20;
/// Bytes of a unit: the product's default.
const UNIT: u32 = 256 << 10;

/// What a lab is to be.
#[derive(Clone, PartialEq, Debug)]
pub struct LabPlan {
    /// Its shape and nodes, from 1 without a gap.
    pub topology: Topology,
    /// What each cable is like.
    pub cable: CablePlan,
    /// The code of the volume.
    pub code: Code,
    /// Bytes of each brick; one at each node.
    pub brick: u64,
    /// The node where the volume is mounted.
    pub mount_at: NodeId,
}

impl LabPlan {
    /// Nodes.
    pub fn nodes(&self) -> u32 {
        self.topology.nodes().len() as u32
    }

    /// Most bytes of RAM that it takes once its bricks are full.
    pub fn memory(&self) -> u64 {
        let bricks = u64::from(self.nodes()).saturating_mul(self.brick.saturating_add(BRICK_MEMORY));
        bricks.saturating_add(CLIENT_MEMORY + REST_MEMORY)
    }

    /// Most bytes of files in RAM.
    pub fn sandbox_bytes(&self) -> u64 {
        u64::from(self.nodes()).saturating_mul(self.brick).saturating_add(REST_MEMORY)
    }

    /// The cluster on its nodes.
    pub(crate) fn cluster(&self) -> ClusterPlan {
        ClusterPlan {
            nodes: self.nodes(),
            disks: Disks::Own,
            brick: self.brick,
            brick_memory: BRICK_MEMORY,
            client_memory: CLIENT_MEMORY,
            unit: UNIT,
            code: self.code.to_string(),
            receive_window: "auto",
            topology: Some(self.topology.to_string()),
            device: None,
        }
    }

    /// Checks whether this machine can be it. Nothing is made.
    ///
    /// # Errors
    /// What is missing, and what would fit.
    pub fn check(&self) -> Result<()> {
        if self.brick < BRICK_MIN {
            let what = format!("a brick of {} MiB is too small", self.brick >> 20);
            return Err(refused(what, format!("--brick {}M or more", BRICK_MIN >> 20)));
        }
        if !Path::new("/dev/fuse").exists() {
            let what = "/dev/fuse is missing: this kernel has no FUSE, or its module is not loaded";
            let remedy = "`modprobe fuse`; in a container, pass the device in (--device /dev/fuse --cap-add SYS_ADMIN)";
            return Err(refused(what, remedy));
        }
        check_kernel(self.cable)?;
        self.check_memory(memory_available()?)
    }

    fn check_memory(&self, available: u64) -> Result<()> {
        let needed = self.memory();
        if needed <= available {
            return Ok(());
        }
        let nodes = u64::from(self.nodes());
        let brick =
            (available.saturating_sub(CLIENT_MEMORY + REST_MEMORY) / nodes).saturating_sub(BRICK_MEMORY);
        let most = available.saturating_sub(CLIENT_MEMORY + REST_MEMORY) / (BRICK_MIN + BRICK_MEMORY);
        let remedy = if brick >= BRICK_MIN {
            format!("--brick {}M", brick >> 20)
        } else {
            format!("at most {most} nodes, with --brick {}M", BRICK_MIN >> 20)
        };
        let what = format!(
            "{nodes} nodes with bricks of {} MiB take up to {} MiB of memory, and {} MiB are available",
            self.brick >> 20,
            needed >> 20,
            available >> 20
        );
        Err(refused(what, remedy))
    }

    /// As a JSON value.
    pub fn to_json(&self) -> Value {
        let Link { mbit, queue } = self.cable.link;
        json!({
            "topology": self.topology.to_string(),
            "mbit": mbit,
            "queue": queue,
            "delay_us": self.cable.delay.as_micros() as u64,
            "code": self.code.to_string(),
            "brick": self.brick,
            "mount_at": self.mount_at.0,
        })
    }

    /// Reads the output of [`LabPlan::to_json`].
    ///
    /// # Errors
    /// Something is missing or wrong.
    pub fn from_json(value: &Value) -> Result<LabPlan> {
        let number = |name: &str| value[name].as_u64().ok_or_else(|| wrong(name));
        let small = |name: &str| u32::try_from(number(name)?).map_err(|_| wrong(name));
        let text = |name: &str| value[name].as_str().ok_or_else(|| wrong(name));
        Ok(LabPlan {
            topology: text("topology")?.parse().map_err(doing("read the plan of a lab"))?,
            cable: CablePlan {
                link: Link { mbit: small("mbit")?, queue: small("queue")? },
                delay: Duration::from_micros(number("delay_us")?),
            },
            code: text("code")?.parse().map_err(doing("read the plan of a lab"))?,
            brick: number("brick")?,
            mount_at: NodeId(small("mount_at")?),
        })
    }
}

fn wrong(name: &str) -> crate::error::LabError {
    doing("read the plan of a lab")(format!("`{name}` is missing or wrong"))
}

/// Bytes of memory that programs can have without others being swapped out.
fn memory_available() -> Result<u64> {
    let file = "/proc/meminfo";
    let text = fs::read_to_string(file).map_err(doing(format!("read {file}")))?;
    available(&text).ok_or("it has no MemAvailable").map_err(doing(format!("read {file}")))
}

/// `MemAvailable:   24219884 kB`
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LabError;
    use crate::fabric::shape::topology;

    fn plan(nodes: u32, brick: u64) -> LabPlan {
        LabPlan {
            topology: topology(nodes, "flat").expect("a switch"),
            cable: CablePlan { link: Link { mbit: 1000, queue: 65536 }, delay: Duration::from_micros(50) },
            code: "2+1".parse().expect("a code"),
            brick,
            mount_at: NodeId(1),
        }
    }

    fn remedy(ran: Result<()>) -> String {
        match ran {
            Err(LabError::Refused { remedy, .. }) => remedy,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_plan_survives_json() {
        let plan = LabPlan { topology: topology(4, "torus:2x2").expect("a torus"), ..plan(4, BRICK_MIN) };
        assert_eq!(LabPlan::from_json(&plan.to_json()).expect("a plan"), plan);
        assert!(LabPlan::from_json(&json!({})).is_err());
    }

    #[test]
    fn too_little_memory_is_told_what_fits() {
        let plan = plan(4, 256 << 20);
        assert!(plan.check_memory(plan.memory()).is_ok());
        assert_eq!(remedy(plan.check_memory(plan.memory() - 1)), "--brick 255M");
        let little = remedy(plan.check_memory(CLIENT_MEMORY + REST_MEMORY + 3 * (BRICK_MIN + BRICK_MEMORY)));
        assert_eq!(little, "at most 3 nodes, with --brick 64M");
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   24 kB\n"), Some(24 << 10));
    }

    #[test]
    fn a_small_brick_is_refused() {
        assert_eq!(remedy(plan(4, BRICK_MIN - 1).check()), "--brick 64M or more");
    }
}
