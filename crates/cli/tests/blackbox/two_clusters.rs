//! Two clusters on one machine: a command that names one of them leaves the other alone.

use std::path::Path;

use crate::fixture::{Fixture, text};

/// Whether a process runs.
fn runs(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}/exe")).exists()
}

#[test]
fn stop_ends_the_gates_of_the_cluster_that_is_named() {
    let fixture = Fixture::new("two-clusters");
    fixture.up(3, "2+1", "128M");
    let other = fixture.path("other");
    let more = ["--bricks", "3", "--code", "2+1", "--size", "128M", "--port", "17600"];
    fixture.must(&[&["up", "--dir", text(&other)][..], &more].concat());
    let first = fixture.nfs("first", &[]);
    let second = fixture.nfs("second", &["--dir", text(&other)]);
    let third = fixture.nfs("third", &["--dir", text(&other)]);

    // Who names no cluster does not say which is meant.
    let mut unnamed = fixture.command(&["nfs", "main", "--stop"]);
    let unnamed =
        unnamed.env_remove("SHOAL_DIR").env("HOME", fixture.path("nowhere")).output().expect("it runs");
    let said = String::from_utf8_lossy(&unnamed.stderr).into_owned();
    assert!(!unnamed.status.success() && said.contains("--meta"), "{said}");
    assert!([&first, &second, &third].iter().all(|gate| runs(gate.pid)));

    let closed = fixture.must(&["nfs", "main", "--stop", "--dir", text(&other), "--json"]).json();
    assert_eq!(closed["closed"].as_array().map(Vec::len), Some(2), "{closed}");
    assert!(runs(first.pid) && !runs(second.pid) && !runs(third.pid));
    // There is nothing left to stop, and the gate of the first cluster is not taken for it.
    fixture.shoal(&["nfs", "main", "--stop", "--dir", text(&other)]).refused(&["another cluster"]);
    fixture.must(&["down", "--dir", text(&other)]);
    assert!(runs(first.pid));
    fixture.must(&["nfs", "main", "--stop"]);
    assert!(!runs(first.pid));
}
