//! stress-ng finds nothing wrong on a mount: each of its stressors of file systems runs for a moment, and verifies
//! itself.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, text, within};

/// Stressors, and how many of its own operations each does.
///
/// Not here are those that need what a mount does not have: `fiemap` and `verity` (they skip themselves), and `xattr`.
const STRESSORS: [(&str, u32); 28] = [
    ("access", 20),
    ("chdir", 50),
    ("chmod", 20),
    ("chown", 20),
    ("close", 50),
    ("dentry", 200),
    ("dir", 200),
    ("dnotify", 5),
    ("dup", 20),
    ("fallocate", 5),
    ("fanotify", 5),
    ("fcntl", 50),
    ("filename", 20),
    ("flock", 200),
    ("fpunch", 2),
    ("fsize", 5),
    ("fstat", 50),
    ("hdd", 100),
    ("inotify", 5),
    ("lockf", 200),
    ("lockofd", 200),
    ("msync", 5),
    ("open", 200),
    ("rename", 100),
    ("seek", 200),
    ("sendfile", 5),
    ("touch", 50),
    ("utime", 50),
];

#[test]
fn stress_ng_finds_nothing_wrong() {
    let fixture = Fixture::new("stress-ng");
    fixture.up(6, "4+2", "1G");
    let mount = fixture.mount("mnt");
    let begun = Instant::now();
    for (stressor, operations) in STRESSORS {
        let args = [
            format!("--{stressor}"),
            "2".to_owned(),
            format!("--{stressor}-ops"),
            operations.to_string(),
            "--timeout".to_owned(),
            "3".to_owned(),
            "--temp-path".to_owned(),
            text(&mount).to_owned(),
        ];
        let sizes = ["hdd", "seek", "msync", "fallocate"].map(|name| format!("--{name}-bytes"));
        let sizes = sizes.iter().map(|name| name.replace("seek-bytes", "seek-size"));
        let mut command = Command::new("stress-ng");
        command.args(&args).arg("--verify");
        for name in sizes {
            command.arg(name).arg("8M");
        }
        let ran = within(Duration::from_secs(120), stressor, || {
            command.output().expect("stress-ng runs: `apt-get install stress-ng`")
        });
        let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        let failed = said.lines().any(|line| line.contains("fail:"));
        assert!(ran.status.success() && !failed, "{stressor}: {:?}\n{said}", ran.status);
    }
    println!("{} stressors in {:?}", STRESSORS.len(), begun.elapsed());
    fixture.umount(&mount);
    fixture.verified();
    // What it does to the machine's only disk makes the daemons late.
    fixture.check_logs(&["the service stood still", "the lease was not renewed"]);
}
