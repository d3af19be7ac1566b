//! A server that no brick can be on is refused or given up with the reason, and nothing is written to it: each test
//! lets it be wrong in one way, at first or when it comes back.

use super::server::greeting;
use super::*;

/// What opening a server of this behaviour says.
fn refused(behaviour: Behaviour, least: u64) -> String {
    let sim = calm(2);
    sim.block_on("brick", async {
        lend(&sim, behaviour).await;
        let world = sim.node("brick");
        let opened = world.timeout(20 * SECOND, Disk::open(&world, URL, least)).await.expect("in time");
        opened.map(|_| ()).unwrap_err().to_string()
    })
}

#[test]
fn what_cannot_be_a_brick_is_refused_with_its_reason() {
    let honest = Behaviour::honest(SIZE);
    let refusal = |kind, words: &[u8]| Behaviour { refusal: Some((kind, words.to_vec())), ..honest.clone() };
    let cases: [(Behaviour, &[&str]); 16] = [
        (Behaviour { greeting: b"SSH-2.0-OpenSSH_9.2p1\r\n".to_vec(), ..honest.clone() }, &["no NBD server"]),
        (Behaviour { greeting: greeting(0), ..honest.clone() }, &["too old"]),
        (
            Behaviour { greeting: Vec::new(), ..honest.clone() },
            &["does not negotiate", "one client at a time"],
        ),
        (refusal(REP_ERR_UNKNOWN, b"no such"), &["no export `disk`", "no such", "nbdinfo --list"]),
        (refusal(REP_ERR_POLICY, b"\x1b[1mbusy"), &["does not give", "\\u{1b}[1mbusy"]),
        (refusal(REP_ERR_TLS_REQD, b""), &["TLS"]),
        (refusal(REP_ERR_UNSUP, b""), &["too old", "NBD_OPT_GO"]),
        (refusal((1 << 31) + 8, b""), &["error 8"]),
        (refusal(REP_ACK, b""), &["no NBD server"]),
        (refusal(REP_SERVER, b"disk"), &["something else"]),
        (refusal(REP_INFO, &[0, 0, 1]), &["describes the export"]),
        (Behaviour { flags: HAS_FLAGS | SEND_FLUSH | READ_ONLY, ..honest.clone() }, &["read-only"]),
        (Behaviour { flags: HAS_FLAGS, ..honest.clone() }, &["knows no flush"]),
        (
            Behaviour { sizes: [8192, 8192, 1 << 20], ..honest.clone() },
            &["8192 to 1048576", "4096 bytes are needed"],
        ),
        (Behaviour { sizes: [0, 0, 1 << 20], ..honest.clone() }, &["requests of 0 to"]),
        (Behaviour { sizes: [1, 512, 2048], ..honest.clone() }, &["1 to 2048"]),
    ];
    for (behaviour, words) in cases {
        let said = refused(behaviour.clone(), 0);
        for word in words.iter().chain(&[URL]) {
            assert!(said.contains(word), "`{word}` is not in: {said}\n{behaviour:?}");
        }
    }
    assert!(refused(honest.clone(), SIZE + 1).contains("has 1048576 bytes, 1048577 are wanted"));
    // A server that says how long its words are, and does not say them.
    let long = [&greeting(3)[..], &REP_INFO.to_be_bytes()].concat();
    assert!(refused(Behaviour { greeting: long, ..honest }, 0).contains("no NBD server"));
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    let sim = calm(2);
    sim.block_on("brick", async {
        let world = sim.node("brick");
        for url in ["nbd://nobody/disk", "nbd://brick:1/disk", "nbd+unix:///disk?socket=/nowhere"] {
            let said = Disk::open(&world, url, 0).await.map(|_| ()).unwrap_err().to_string();
            assert!(said.starts_with(url), "{said}");
        }
    });
}

type Change = fn(&mut Behaviour);

/// What is said of a server that comes back in another behaviour.
fn changed(change: Change) -> String {
    let said = std::cell::RefCell::default();
    story(async |sim, world, server, disk| {
        disk.write(4096, vec![block(1)]).await.unwrap();
        drop(server);
        sim.kill("lender");
        let mut behaviour = Behaviour::honest(SIZE);
        change(&mut behaviour);
        lend(sim, behaviour).await;
        let lost = world.timeout(10 * SECOND, disk.sync()).await.expect("at once").unwrap_err();
        said.replace(lost.to_string());
    });
    said.into_inner()
}

#[test]
fn a_server_that_comes_back_as_another_one_is_left() {
    let cases: [(Change, &str); 5] = [
        (|behaviour| behaviour.size = SIZE - 4096, "has 1044480 bytes now and had 1048576"),
        (|behaviour| behaviour.flags |= READ_ONLY, "read-only"),
        (|behaviour| behaviour.sizes = [512, 512, 1 << 20], "block sizes have changed"),
        (|behaviour| behaviour.greeting = b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "no NBD server"),
        (
            |behaviour| behaviour.fault = Some((CMD_WRITE, InjectedFault::Code(CODE_NO_SPACE))),
            "no space left",
        ),
    ];
    for (change, words) in cases {
        let said = changed(change);
        assert!(said.contains(words) && said.contains(URL), "`{words}` is not in: {said}");
    }
}

#[test]
fn a_server_that_grows_or_lacks_its_export_for_a_while_is_the_same() {
    story(async |sim, world, server, disk| {
        drop(server);
        sim.kill("lender");
        let refusal = Some((REP_ERR_UNKNOWN, Vec::new()));
        let server = lend(sim, Behaviour { refusal, ..Behaviour::honest(SIZE + 4096) }).await;
        world.sleep(10 * SECOND).await;
        server.behaviour.borrow_mut().refusal = None;
        disk.write(4096, vec![block(1)]).await.unwrap();
        assert_eq!(disk.len(), SIZE);
    });
}

#[test]
fn another_disk_under_the_same_name_is_not_written_to() {
    story(async |sim, world, server, disk| {
        disk.write(0, vec![block(1)]).await.unwrap();
        disk.sync().await.unwrap();
        drop(disk);
        let disk = Disk::open(&world, URL, 0).await.unwrap();
        disk.write(8192, vec![block(2)]).await.unwrap();
        drop(server);
        sim.kill("lender");
        // One of the same size, in its place.
        let lender = sim.node("lender");
        let other = lender.create_disk("other", SIZE).await.unwrap();
        let server = Server::new(&lender, other, Behaviour::honest(SIZE));
        server.listen(lender.listen(":10809").await.unwrap());
        let lost = disk.sync().await.unwrap_err().to_string();
        assert!(lost.contains("another disk is exported under this name"), "{lost}");
        assert_eq!(*server.disk.read(8192, 4096).await.unwrap(), [0; 4096]);
    });
}

#[test]
fn replies_that_make_no_sense_are_the_end() {
    for fault in [InjectedFault::Cookie, InjectedFault::Magic, InjectedFault::Structured] {
        for kind in [CMD_READ, CMD_WRITE, CMD_FLUSH] {
            story(async |_, world, server, disk| {
                server.behaviour.borrow_mut().fault = Some((kind, fault));
                let asked = world.now();
                let work = async {
                    disk.write(4096, vec![block(1)]).await?;
                    disk.sync().await?;
                    disk.read(4096, 4096).await
                };
                let lost = work.await.unwrap_err().to_string();
                assert!(lost.contains("no NBD server, or a broken one"), "{lost}");
                assert!(world.now() - asked < SECOND);
                assert_eq!(disk.sync().await.unwrap_err().to_string(), lost);
            });
        }
    }
}

#[test]
fn a_failed_read_is_one_error_and_a_failed_write_or_flush_the_end() {
    story(async |_, _, server, disk| {
        server.behaviour.borrow_mut().fault = Some((CMD_READ, InjectedFault::Code(CODE_IO)));
        let error = disk.read(4096, 4096).await.unwrap_err().to_string();
        assert!(error.contains("failed to read: error 5 (I/O error), at 4096"), "{error}");
        server.behaviour.borrow_mut().fault = None;
        assert!(disk.read(4096, 4096).await.is_ok());
        disk.sync().await.unwrap();
    });
    for (kind, words) in [(CMD_WRITE, "failed to write"), (CMD_FLUSH, "failed to flush")] {
        story(async |_, _, server, disk| {
            server.behaviour.borrow_mut().fault = Some((kind, InjectedFault::Code(CODE_IO)));
            let written = disk.write(4096, vec![block(1)]).await;
            let error = written.err().or(disk.sync().await.err()).unwrap().to_string();
            assert!(error.contains(words) && error.contains(URL), "{error}");
            // A second flush proves nothing, so there is none.
            server.behaviour.borrow_mut().fault = None;
            let flushes = server.flushes.get();
            assert_eq!(disk.sync().await.unwrap_err().to_string(), error);
            assert_eq!(server.flushes.get(), flushes);
        });
    }
}
