//! A volume over NFS is what its mounts and other gates see: libnfs and a client of ours make every request, and
//! answers and bytes are compared.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;

use nfs3_types::nfs3::*;
use nfs3_types::{mount, portmap};

use crate::fixture::{Fixture, Prng, text};
use crate::nfs_client::{NfsClient, ROOT, User, place, user, with_mode, writing};

/// A gate of the fixture.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    pub(crate) pid: i32,
}

impl Fixture {
    /// Opens a gate of the volume `main`, at a free port unless told otherwise.
    pub(crate) fn nfs(&self, name: &str, options: &[&str]) -> Gate {
        self.nfs_at(name, "127.0.0.1:0", options)
    }

    pub(crate) fn nfs_at(&self, name: &str, listen: &str, options: &[&str]) -> Gate {
        self.nfs_of("main", name, listen, options)
    }

    pub(crate) fn nfs_of(&self, volume: &str, name: &str, listen: &str, options: &[&str]) -> Gate {
        let log = self.path(&format!("{name}.log"));
        let words = ["nfs", volume, "--listen", listen, "--log", text(&log), "--json"];
        let answer = self.must(&[&words, options].concat()).json();
        let address = answer["address"].as_str().and_then(|at| at.parse().ok()).expect("an address");
        let pid = answer["pid"].as_i64().and_then(|pid| pid.try_into().ok()).expect("a pid");
        Gate { address, pid }
    }

    pub(crate) fn stop_nfs(&self, gate: &Gate) {
        self.must(&["nfs", "main", "--stop", "--listen", &gate.address.to_string()]);
    }
}

impl Gate {
    pub(crate) fn client(&self, user: User) -> NfsClient {
        NfsClient::connect(self.address, user).expect("the gate listens")
    }

    /// A client, and the handle of the volume's root.
    pub(crate) fn root(&self, user: User) -> (NfsClient, nfs_fh3) {
        let mut client = self.client(user);
        let root = client.mount("/main").expect("the volume");
        (client, root)
    }

    /// The URL of a file for the tools of libnfs, as a user.
    fn url(&self, path: &str, uid: u32) -> String {
        let port = self.address.port();
        format!("nfs://127.0.0.1{path}?version=3&nfsport={port}&mountport={port}&uid={uid}&gid={uid}")
    }
}

/// Runs a tool of libnfs that must succeed; what it said.
fn tool(words: &[&str]) -> Vec<u8> {
    let ran = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    let ran = ran.unwrap_or_else(|error| panic!("{}: {error}; see ./dev test for what it needs", words[0]));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{words:?}:\n{}\n{said}", String::from_utf8_lossy(&ran.stdout));
    ran.stdout
}

#[test]
fn the_tools_of_libnfs() {
    let fixture = Fixture::new("nfs-tools");
    fixture.up(4, "2+2", "512M");
    let gate = fixture.nfs("gate", &["--no-root-squash"]);
    let mount = fixture.mount("mnt");
    fs::create_dir(mount.join("dir")).expect("a directory");
    let bytes = Prng::new(31).bytes(9_000_001);
    let (local, back) = (fixture.path("local"), fixture.path("back"));
    fs::write(&local, &bytes).expect("a local file");

    tool(&["nfs-cp", text(&local), &gate.url("/main/dir/copy", 0)]);
    assert!(tool(&["nfs-cat", &gate.url("/main/dir/copy", 0)]) == bytes, "nfs-cat");
    tool(&["nfs-cp", &gate.url("/main/dir/copy", 0), text(&back)]);
    assert!(fs::read(&back).expect("the copy") == bytes, "nfs-cp");
    assert!(fs::read(mount.join("dir/copy")).expect("the file") == bytes, "the mount");
    let listed = String::from_utf8(tool(&["nfs-ls", &gate.url("/main/dir", 0)])).expect("text");
    assert!(listed.contains("copy") && listed.contains("9000001"), "{listed}");

    let exports = fixture.status()["exports"].clone();
    assert_eq!(exports[0], format!("nfs://{}/main", gate.address));
    fixture.must(&["down"]);
    assert!(NfsClient::connect(gate.address, ROOT).is_err(), "the gate ends with the cluster");
    fixture.check_logs(&[]);
}

#[test]
fn every_procedure() {
    let fixture = Fixture::new("nfs-procedures");
    fixture.up(3, "2+1", "512M");
    let gate = fixture.nfs("gate", &["--no-root-squash"]);
    let (mut nfs, root) = gate.root(ROOT);
    assert_eq!(nfs.exports(), ["/main"]);
    assert_eq!(nfs.mount("/other"), Err(2));
    let port = u32::from(gate.address.port());
    assert_eq!((nfs.port(PROGRAM, 3), nfs.port(mount::PROGRAM, 3), nfs.port(PROGRAM, 4)), (port, port, 0));
    assert_eq!(nfs.port(portmap::PROGRAM, 2), port);

    let dir = nfs.mkdir(&root, "dir", 0o755).expect("a directory");
    assert_eq!(nfs.mkdir(&root, "dir", 0o755).err(), Some(nfsstat3::NFS3ERR_EXIST));
    assert_eq!(nfs.mount("/main/dir"), Ok(dir.clone()));
    assert_eq!(nfs.lookup(&root, "dir"), Ok(dir.clone()));
    assert_eq!((nfs.lookup(&dir, "."), nfs.lookup(&dir, "..")), (Ok(dir.clone()), Ok(root.clone())));
    assert_eq!(nfs.lookup(&root, ".."), Ok(root.clone()));
    assert_eq!(nfs.lookup(&dir, "none").err(), Some(nfsstat3::NFS3ERR_NOENT));

    let file = nfs.file(&dir, "file", 0o640);
    nfs.write(&file, 10, b"bytes", stable_how::DATA_SYNC).expect("a write");
    assert_eq!(nfs.read(&file, 8, 100).expect("a read"), (b"\0\0bytes".to_vec(), true));
    assert_eq!(nfs.read(&file, 8, 4).expect("a read"), (b"\0\0by".to_vec(), false));
    assert_eq!(nfs.read(&file, 8, 7).expect("a read"), (b"\0\0bytes".to_vec(), true));
    assert_eq!(nfs.read(&file, 99, 7).expect("a read"), (vec![], true));
    assert_eq!(nfs.read(&dir, 0, 7).err(), Some(nfsstat3::NFS3ERR_ISDIR));
    let attr = nfs.getattr(&file).expect("attributes");
    assert_eq!((attr.type_, attr.mode, attr.nlink, attr.size), (ftype3::NF3REG, 0o640, 1, 15));

    let size = sattr3 { size: Nfs3Option::Some(3), ..with_mode(0o600) };
    assert_eq!(
        nfs.setattr(&file, size.clone(), Some(nfstime3::default())).err(),
        Some(nfsstat3::NFS3ERR_NOT_SYNC)
    );
    let cut = nfs.setattr(&file, size, Some(attr.ctime)).expect("the guard holds");
    assert_eq!((cut.size, cut.mode), (3, 0o600));
    let time = nfstime3 { seconds: 1_000_000_000, nseconds: 7 };
    let times = sattr3 { mtime: set_mtime::SET_TO_CLIENT_TIME(time), ..sattr3::default() };
    assert_eq!(nfs.setattr(&file, times, None).expect("a time").mtime, time);

    assert_eq!(nfs.link(&file, &root, "second").expect("a link").nlink, 2);
    let link = nfs.symlink(&root, "link", "dir/file").expect("a link");
    assert_eq!(nfs.readlink(&link), Ok(b"dir/file".to_vec()));
    assert_eq!(nfs.readlink(&file).err(), Some(nfsstat3::NFS3ERR_INVAL));
    let pipe = nfs.mknod(&root, "pipe", mknoddata3::NF3FIFO(with_mode(0o644))).expect("a pipe");
    assert_eq!(nfs.getattr(&pipe).expect("attributes").type_, ftype3::NF3FIFO);
    let spec = specdata3 { specdata1: 8, specdata2: 300 };
    let device = mknoddata3::NF3BLK(devicedata3 { dev_attributes: with_mode(0o600), spec: spec.clone() });
    let device = nfs.mknod(&root, "device", device).expect("a device");
    assert_eq!(nfs.getattr(&device).expect("attributes").rdev, spec);

    nfs.rename((&dir, "file"), (&root, "moved")).expect("a move");
    assert_eq!(nfs.lookup(&root, "moved"), Ok(file.clone()));
    let victim = nfs.file(&root, "victim", 0o600);
    nfs.rename((&root, "moved"), (&root, "victim")).expect("in another's place");
    assert_eq!(nfs.getattr(&victim).err(), Some(nfsstat3::NFS3ERR_STALE));
    assert_eq!(nfs.rename((&root, "dir"), (&dir, "self")).err(), Some(nfsstat3::NFS3ERR_INVAL));
    nfs.remove(&root, "victim").expect("one of two names");
    assert_eq!(nfs.getattr(&file).expect("the other").nlink, 1);
    nfs.remove(&root, "second").expect("the last one");
    assert_eq!(nfs.getattr(&file).err(), Some(nfsstat3::NFS3ERR_STALE));
    assert_eq!(nfs.read(&file, 0, 1).err(), Some(nfsstat3::NFS3ERR_STALE));
    let steady = nfs.file(&root, "steady", 0o644);
    let before = nfs.write(&steady, 0, b"x", stable_how::UNSTABLE).expect("a write");
    assert_eq!(nfs.write(&file, 0, b"x", stable_how::UNSTABLE).err(), Some(nfsstat3::NFS3ERR_STALE));
    assert_eq!(nfs.write(&steady, u64::MAX, b"x", stable_how::UNSTABLE).err(), Some(nfsstat3::NFS3ERR_FBIG));
    assert_eq!(nfs.commit(&steady), Ok(before), "nothing of anybody's is lost");
    assert_eq!(nfs.remove(&root, "second").err(), Some(nfsstat3::NFS3ERR_NOENT));
    assert_eq!(nfs.remove(&root, "dir").err(), Some(nfsstat3::NFS3ERR_ISDIR));
    nfs.rmdir(&root, "dir").expect("an empty directory");
    assert_eq!(nfs.getattr(&dir).err(), Some(nfsstat3::NFS3ERR_STALE));

    assert!(nfs.fs_stat(&root).is_ok_and(|space| space.tbytes > 0 && space.fbytes <= space.tbytes));
    assert!(nfs.fs_info(&root).is_ok_and(|limits| limits.rtmax == 1 << 20 && limits.wtmax == 1 << 20));
    assert!(nfs.path_conf(&root).is_ok_and(|limits| limits.name_max == 255 && limits.no_trunc));
    names_at_the_limit(&mut nfs, &root);
    handles_of_others(&mut nfs, &root);
    fixture.check_logs(&[]);
}

fn names_at_the_limit(nfs: &mut NfsClient, root: &nfs_fh3) {
    let (longest, longer) = ("n".repeat(255), "n".repeat(256));
    let file = nfs.file(root, &longest, 0o644);
    assert_eq!(nfs.lookup(root, &longest), Ok(file));
    for name in [longer.as_str(), &"n".repeat(5000)] {
        let made = nfs.create(root, name, createhow3::UNCHECKED(with_mode(0o644)));
        assert_eq!(made.err(), Some(nfsstat3::NFS3ERR_NAMETOOLONG));
        assert_eq!(nfs.lookup(root, name).err(), Some(nfsstat3::NFS3ERR_NAMETOOLONG));
    }
    for name in ["", "a/b", "a\0b"] {
        assert_eq!(nfs.mkdir(root, name, 0o755).err(), Some(nfsstat3::NFS3ERR_INVAL), "{name:?}");
    }
}

fn handles_of_others(nfs: &mut NfsClient, root: &nfs_fh3) {
    let changed = |at: usize| {
        let mut bytes = root.data.to_vec();
        bytes[at] ^= 1;
        nfs_fh3 { data: bytes.into() }
    };
    for at in 0..root.data.len() {
        assert_eq!(nfs.getattr(&changed(at)).err(), Some(nfsstat3::NFS3ERR_BADHANDLE), "byte {at}");
    }
    assert_eq!(nfs.getattr(&nfs_fh3::default()).err(), Some(nfsstat3::NFS3ERR_BADHANDLE));
}

#[test]
fn two_gates_and_a_mount_see_the_same_bytes() {
    let fixture = Fixture::new("nfs-gates");
    fixture.up(4, "2+2", "512M");
    let gates = [fixture.nfs("a", &["--no-root-squash"]), fixture.nfs("b", &["--no-root-squash"])];
    let mount = fixture.mount("mnt");
    let mut clients = gates.each_ref().map(|gate| gate.root(ROOT));
    let (first, root) = &mut clients[0];
    let file = first.file(root, "file", 0o644);
    let mut prng = Prng::new(41);
    let mut right: Vec<u8> = Vec::new();
    for round in 0..24 {
        let at = prng.below(right.len() as u64 + 1);
        let len = 1 + prng.below(1 << 20) as usize;
        let bytes = prng.bytes(len);
        right.resize(right.len().max(at as usize + len), 0);
        right[at as usize..at as usize + len].copy_from_slice(&bytes);
        match round % 3 {
            2 => {
                use std::os::unix::fs::FileExt;
                let local = fs::OpenOptions::new().write(true).open(mount.join("file")).expect("the file");
                local.write_all_at(&bytes, at).expect("a write");
                local.sync_all().expect("stable");
            }
            gate => {
                let client = &mut clients[gate].0;
                let verifier = client.write(&file, at, &bytes, stable_how::UNSTABLE).expect("a write");
                assert_eq!(client.commit(&file), Ok(verifier), "nothing is lost");
            }
        }
        for (number, (client, root)) in clients.iter_mut().enumerate() {
            assert_eq!(client.getattr(&file).expect("attributes").size, right.len() as u64, "round {round}");
            assert_eq!(client.lookup(root, "file"), Ok(file.clone()), "the same handle at every gate");
            assert!(client.read_all(&file) == right, "round {round}, gate {number}");
        }
        assert!(fs::read(mount.join("file")).expect("the file") == right, "round {round}, mount");
    }
    // A gate that was stopped has made everything stable, and the next one knows its handles.
    let (client, _) = &mut clients[0];
    client.write(&file, 0, b"before the end", stable_how::UNSTABLE).expect("a write");
    fixture.stop_nfs(&gates[0]);
    right[..14].copy_from_slice(b"before the end");
    assert!(clients[1].0.read_all(&file) == right);
    let again = fixture.nfs("again", &["--no-root-squash"]);
    assert!(again.client(ROOT).read_all(&file) == right);
    fixture.check_logs(&[]);
}

#[test]
fn permissions_hold_for_every_user() {
    let fixture = Fixture::new("nfs-permissions");
    fixture.up(3, "2+1", "512M");
    let gate = fixture.nfs("gate", &["--no-root-squash"]);
    let (mut root, top) = gate.root(ROOT);
    let (mut alice, mut bob) = (gate.client(user(1000, &[500])), gate.client(user(1001, &[])));
    let refused = Some(nfsstat3::NFS3ERR_ACCES);
    assert_eq!(alice.mkdir(&top, "hers", 0o755).err(), refused, "the root directory is root's");
    let open = root.mkdir(&top, "open", 0o1777).expect("a directory");
    root.setattr(&open, with_mode(0o1777), None).expect("for everybody");

    let file = alice.file(&open, "file", 0o640);
    let attr = alice.getattr(&file).expect("attributes");
    assert_eq!((attr.uid, attr.gid), (1000, 1000));
    alice.write(&file, 0, b"hers", stable_how::FILE_SYNC).expect("her own");
    assert_eq!(bob.read(&file, 0, 10).err(), refused);
    assert_eq!(bob.write(&file, 0, b"x", stable_how::UNSTABLE).err(), refused);
    assert_eq!(bob.commit(&file).err(), refused);
    assert_eq!((bob.access(&file), alice.access(&file)), (Ok(0), Ok(0x0d)));
    assert_eq!(bob.setattr(&file, with_mode(0o777), None).err(), Some(nfsstat3::NFS3ERR_PERM));
    let given = sattr3 { uid: Nfs3Option::Some(1001), ..sattr3::default() };
    assert_eq!(alice.setattr(&file, given.clone(), None).err(), Some(nfsstat3::NFS3ERR_PERM));
    assert_eq!(bob.remove(&open, "file").err(), Some(nfsstat3::NFS3ERR_PERM), "sticky");
    assert_eq!(bob.rename((&open, "file"), (&open, "his")).err(), Some(nfsstat3::NFS3ERR_PERM), "sticky");
    let group = sattr3 { gid: Nfs3Option::Some(500), ..sattr3::default() };
    assert_eq!(alice.setattr(&file, group, None).expect("one of her groups").gid, 500);
    let mut carol = gate.client(user(1002, &[500]));
    assert_eq!(carol.read(&file, 0, 10).expect("the group reads").0, b"hers");
    let closed = alice.mkdir(&open, "closed", 0o700).expect("a directory");
    alice.file(&closed, "inside", 0o666);
    assert_eq!(bob.lookup(&closed, "inside").err(), refused);
    assert_eq!(bob.page(&closed, 0, 4096).err(), refused);
    assert_eq!(bob.link(&file, &closed, "x").err(), refused);
    alice.setattr(&file, with_mode(0o4777), None).expect("her own");
    bob.write(&file, 0, b"his", stable_how::UNSTABLE).expect("everybody may");
    assert_eq!(alice.getattr(&file).expect("attributes").mode, 0o777, "lent rights end with a write");
    assert_eq!(root.setattr(&file, given, None).expect("root may").uid, 1001);
    let device =
        || mknoddata3::NF3CHR(devicedata3 { dev_attributes: with_mode(0o666), spec: specdata3::default() });
    assert_eq!(alice.mknod(&open, "device", device()).err(), Some(nfsstat3::NFS3ERR_PERM));

    // As it is unless told otherwise: the clients' root is nobody.
    let squashed = fixture.nfs("squashed", &[]);
    let mut nobody = squashed.client(ROOT);
    assert_eq!(nobody.mkdir(&top, "roots", 0o755).err(), refused);
    let made = nobody.mkdir(&open, "nobodys", 0o755).expect("everybody may");
    let attr = nobody.getattr(&made).expect("attributes");
    assert_eq!((attr.uid, attr.gid), (65534, 65534));

    let quiet = fixture.nfs("read-only", &["--read-only", "--no-root-squash"]);
    let mut reader = quiet.client(ROOT);
    let read_only = Some(nfsstat3::NFS3ERR_ROFS);
    assert_eq!(reader.read(&file, 0, 3).expect("a read").0, b"his");
    assert_eq!(reader.write(&file, 0, b"x", stable_how::UNSTABLE).err(), read_only);
    assert_eq!(reader.remove(&open, "file").err(), read_only);
    assert_eq!(reader.setattr(&file, with_mode(0), None).err(), read_only);
    assert_eq!(reader.access(&open), Ok(0x03));

    fixture.shoal(&["nfs", "main", "--listen", "0.0.0.0:0"]).refused(&["any user", "--allow"]);
    fixture.shoal(&["nfs", "main", "--allow", "10.0.0.0/40"]).refused(&["10.0.0.0/40"]);
    fixture.shoal(&["nfs", "nain"]).refused(&["no volume `nain`", "one of: main"]);
    let taken = gate.address.to_string();
    fixture.shoal(&["nfs", "main", "--listen", &taken]).refused(&["in use by another process"]);
    let strangers = fixture.nfs("strangers", &["--allow", "10.99.0.0/16"]);
    let mut turned = strangers.client(ROOT);
    assert!(turned.try_commit(&file).is_err(), "its address is not among those that are allowed");
    fixture.check_logs(&["turned away"]);
}

#[test]
fn directories_are_listed_by_pages_while_they_grow() {
    let fixture = Fixture::new("nfs-pages");
    fixture.up(3, "2+1", "512M");
    let gates = [fixture.nfs("a", &["--no-root-squash"]), fixture.nfs("b", &["--no-root-squash"])];
    let (mut nfs, root) = gates[0].root(ROOT);
    let dir = nfs.mkdir(&root, "dir", 0o755).expect("a directory");
    let old: BTreeSet<String> = (0..300).map(|n| format!("old-{n}-{}", "x".repeat(n % 60))).collect();
    for name in &old {
        nfs.symlink(&dir, name, "nowhere").expect("a name");
    }
    let adding = {
        let (mut nfs, dir) = (gates[1].client(ROOT), dir.clone());
        thread::spawn(move || {
            for n in 0..120 {
                nfs.symlink(&dir, &format!("new-{n}"), "nowhere").expect("a name");
                nfs.remove(&dir, &format!("new-{n}")).expect("it is there");
                nfs.symlink(&dir, &format!("more-{n}"), "nowhere").expect("a name");
            }
        })
    };
    for (round, count) in [600, 4096, 70_000].into_iter().enumerate() {
        let (mut seen, mut cookie, mut pages) = (Vec::new(), 0, 0);
        loop {
            // Cookies are good at every gate.
            let client = if pages % 2 == 0 { &mut nfs } else { &mut gates[1].client(ROOT) };
            let (names, last) = if round == 1 {
                let (entries, last) = client.page_plus(&dir, cookie, count).expect("a page");
                let checked = entries.iter().map(|entry| {
                    let name = String::from_utf8_lossy(&entry.name.0).into_owned();
                    assert!(name == ".." || entry.name_attributes.is_some(), "{name} has no attributes");
                    (name, entry.cookie)
                });
                (checked.collect::<Vec<_>>(), last)
            } else {
                client.page(&dir, cookie, count).expect("a page")
            };
            pages += 1;
            cookie = names.last().map_or(cookie, |(_, cookie)| *cookie);
            seen.extend(names.into_iter().map(|(name, _)| name));
            if last {
                break;
            }
        }
        assert!(pages > 2 || count > 65_000, "{pages} pages of {count} bytes");
        let times = |name: &String| seen.iter().filter(|seen| *seen == name).count();
        assert!(old.iter().all(|name| times(name) == 1), "every old name, once");
        assert_eq!(&seen[..2], [".", ".."]);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "no name twice");
    }
    adding.join().expect("names can be added meanwhile");
    assert_eq!(nfs.page(&dir, 0, 100).err(), Some(nfsstat3::NFS3ERR_TOOSMALL));
    assert_eq!(nfs.page(&dir, 0, 8).err(), Some(nfsstat3::NFS3ERR_TOOSMALL));
    fixture.check_logs(&[]);
}

/// A request that comes again over another connection, because its answer was lost, is done once.
#[test]
fn what_is_asked_for_twice_is_done_once() {
    let fixture = Fixture::new("nfs-repeats");
    fixture.up(3, "2+1", "512M");
    let gate = fixture.nfs("gate", &["--no-root-squash"]);
    let (mut nfs, root) = gate.root(ROOT);
    let twice = |record: &[u8]| -> [Vec<u8>; 2] {
        [(); 2].map(|()| {
            let mut other = gate.client(ROOT);
            other.conn.write_all(record).expect("the gate listens");
            other.receive().expect("an answer").1
        })
    };
    let attributes = with_mode(0o755);
    let made = nfs.record(PROGRAM, 9, &MKDIR3args { where_: place(&root, "dir"), attributes });
    let [first, second] = twice(&made);
    assert!(first == second && first[..4] == [0; 4]);
    let moved =
        nfs.record(PROGRAM, 14, &RENAME3args { from: place(&root, "dir"), to: place(&root, "other") });
    assert!(twice(&moved).iter().all(|answer| answer[..4] == [0; 4]));
    let removed = nfs.record(PROGRAM, 13, &RMDIR3args { object: place(&root, "other") });
    assert!(twice(&removed).iter().all(|answer| answer[..4] == [0; 4]));
    assert_eq!(nfs.rmdir(&root, "other").err(), Some(nfsstat3::NFS3ERR_NOENT), "another request");

    // An exclusive creation knows its own by a number that the file keeps, at any gate.
    let exclusive = |number: u8| createhow3::EXCLUSIVE(createverf3([number; 8]));
    let file = nfs.create(&root, "exclusive", exclusive(7)).expect("a file");
    let mut other = fixture.nfs("other", &["--no-root-squash"]).client(ROOT);
    assert_eq!(other.create(&root, "exclusive", exclusive(7)), Ok(file.clone()));
    assert_eq!(other.create(&root, "exclusive", exclusive(8)).err(), Some(nfsstat3::NFS3ERR_EXIST));
    let guarded = createhow3::GUARDED(with_mode(0o644));
    assert_eq!(other.create(&root, "exclusive", guarded).err(), Some(nfsstat3::NFS3ERR_EXIST));
    nfs.write(&file, 0, b"bytes", stable_how::FILE_SYNC).expect("a write");
    let empty = sattr3 { size: Nfs3Option::Some(0), ..with_mode(0o644) };
    assert_eq!(other.create(&root, "exclusive", createhow3::UNCHECKED(empty)), Ok(file.clone()));
    assert_eq!(nfs.read(&file, 0, 10), Ok((vec![], true)));
    fixture.check_logs(&[]);
}

/// Requests of one connection are carried out side by side: a COMMIT that waits for bricks holds nobody up.
#[test]
fn a_slow_commit_holds_nobody_up() {
    use nix::sys::signal::{Signal, kill};
    let fixture = Fixture::new("nfs-slow");
    fixture.up(3, "2+1", "512M");
    let gate = fixture.nfs("gate", &["--no-root-squash"]);
    let (mut nfs, root) = gate.root(ROOT);
    let file = nfs.file(&root, "file", 0o644);
    nfs.write(&file, 0, b"0", stable_how::FILE_SYNC).expect("a write");
    let bricks = [1, 2, 3].map(|brick| nix::unistd::Pid::from_raw(fixture.pid(&format!("b{brick}"))));
    let all = |signal| bricks.iter().for_each(|brick| kill(*brick, signal).expect("the brick runs"));
    all(Signal::SIGSTOP);
    let bytes = [7; 9000];
    nfs.send(NFS_PROGRAM::NFSPROC3_WRITE, &writing(&file, 0, &bytes, stable_how::UNSTABLE)).expect("sent");
    let write = nfs.xid;
    nfs.send(NFS_PROGRAM::NFSPROC3_COMMIT, &COMMIT3args { file: file.clone(), offset: 0, count: 0 })
        .expect("sent");
    let commit = nfs.xid;
    nfs.send(NFS_PROGRAM::NFSPROC3_GETATTR, &GETATTR3args { object: root.clone() }).expect("sent");
    let getattr = nfs.xid;
    let mut order = vec![nfs.receive().expect("an answer").0, nfs.receive().expect("an answer").0];
    order.sort_unstable();
    assert_eq!(order, [write, getattr], "both before the bricks go on");
    all(Signal::SIGCONT);
    assert_eq!(nfs.receive().expect("an answer").0, commit);
    assert!(nfs.read_all(&file) == bytes);
}
