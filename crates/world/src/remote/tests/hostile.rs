//! No bytes that a server sends cause a panic or are believed, and no length that it claims takes memory: random and
//! wrong messages go straight into the parts that read them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::error::RemoteError;
use super::super::negotiation::Negotiation;
use super::super::replay_log::{Piece, ReplayLog, Task};
use super::super::url::{Endpoint, Url, is_url};
use super::*;
use crate::nbd::{OptionHeader, OptionReplyHeader, Request, SimpleReply, option, option_reply};

fn write(offset: u64, byte: u8) -> Task {
    Task::Write(Piece { offset, len: 4096, parts: vec![block(byte)] })
}

fn done(cookie: u64) -> SimpleReply {
    SimpleReply { cookie, code: 0 }
}

#[test]
fn a_flush_covers_what_was_answered_before_it_was_sent() {
    let mut replay_log = ReplayLog::default();
    for at in 0..3 {
        replay_log.ask(write(at * 4096, 1), 0).unwrap();
    }
    assert_eq!(replay_log.next_request().unwrap().0.cookie, 1);
    assert_eq!(replay_log.next_request().unwrap().0.cookie, 2);
    replay_log.answered(done(2), Buf::empty()).unwrap();
    replay_log.next_request().unwrap();
    replay_log.ask(Task::Flush, 0).unwrap();
    assert_eq!(replay_log.next_request().unwrap().0.kind, CMD_FLUSH);
    // Answered after the flush was sent: nobody knows whether it is covered.
    replay_log.answered(done(1), Buf::empty()).unwrap();
    assert!(replay_log.is_flushing());
    replay_log.answered(done(4), Buf::empty()).unwrap();
    assert_eq!(
        (replay_log.to_repeat(), replay_log.unflushed(), replay_log.is_flushing()),
        (vec![1, 3], 8192, false)
    );
}

#[test]
fn a_flush_that_is_sent_again_covers_what_was_repeated() {
    let mut replay_log = ReplayLog::default();
    let completions =
        [write(0, 1), Task::Read { offset: 0, len: 1 }, Task::Flush].map(|task| replay_log.ask(task, 7));
    while replay_log.next_request().is_some() {}
    replay_log.broken();
    assert_eq!(replay_log.oldest(), Some(7), "a new connection is no answer");
    assert!(replay_log.answered(done(3), Buf::empty()).is_err(), "it was not asked on this connection");
    assert_eq!(replay_log.to_repeat(), [1]);
    assert_eq!(replay_log.repeat(1).unwrap().1, [block(1)]);
    replay_log.repeated(done(1)).unwrap();
    let sent: Vec<u16> =
        std::iter::from_fn(|| replay_log.next_request()).map(|(request, _)| request.kind).collect();
    assert_eq!(sent, [CMD_READ, CMD_FLUSH]);
    replay_log.answered(done(3), Buf::empty()).unwrap();
    assert_eq!((replay_log.to_repeat().len(), replay_log.unflushed()), (0, 0));
    replay_log.lose("gone".to_owned());
    assert!(replay_log.ask(Task::Flush, 0).is_err());
    drop(completions);
}

#[test]
fn a_write_that_was_answered_and_fails_when_repeated_is_the_end() {
    let mut replay_log = ReplayLog::default();
    replay_log.ask(write(0, 1), 0).unwrap();
    replay_log.next_request().unwrap();
    replay_log.answered(done(1), Buf::empty()).unwrap();
    replay_log.broken();
    replay_log.repeat(1).unwrap();
    let failed = replay_log.repeated(SimpleReply { cookie: 1, code: CODE_IO });
    assert!(matches!(failed, Err(RemoteError::Fatal(_))), "{failed:?}");
    let shut = replay_log.repeated(SimpleReply { cookie: 1, code: CODE_SHUTDOWN });
    assert!(matches!(shut, Err(RemoteError::Transient(_))), "{shut:?}");
}

#[test]
fn the_url_of_a_lent_disk_is_understood_or_refused() {
    let tcp = |address: &str, export: &str| Some((Endpoint::Tcp(address.to_owned()), export.to_owned()));
    let unix = |path: &str, export: &str| Some((Endpoint::Unix(path.to_owned()), export.to_owned()));
    let cases = [
        ("nbd://host/disk", tcp("host:10809", "disk")),
        ("nbd://host:7/disk", tcp("host:7", "disk")),
        ("nbd://10.0.0.9", tcp("10.0.0.9:10809", "")),
        ("nbd://host/", tcp("host:10809", "")),
        ("nbd://host/a/b%20c%2fd", tcp("host:10809", "a/b c/d")),
        ("nbd://[::1]:7/x", tcp("[::1]:7", "x")),
        ("nbd://[fe80::1]/x", tcp("[fe80::1]:10809", "x")),
        ("nbd+unix:///disk?socket=/run/s%3fx", unix("/run/s?x", "disk")),
        ("nbd+unix:///?socket=s", unix("s", "")),
        ("nbd://", None),
        ("nbd://host:0/x", None),
        ("nbd://host:port/x", None),
        ("nbd://host:70000/x", None),
        ("nbd://::1/x", None),
        ("nbd://me@host/x", None),
        ("nbd://host/x?socket=/s", None),
        ("nbd://host/%4", None),
        ("nbd://host/%+4", None),
        ("nbd://host/%ff", None),
        ("nbds://host/x", None),
        ("nbd+vsock://1/x", None),
        ("nbd+unix://host/x?socket=/s", None),
        ("nbd+unix:///x", None),
        ("nbd+unix:///x?socket=", None),
        ("nbd+unix:///x?socket=/s&tls=1", None),
    ];
    for (text, right) in cases {
        assert!(is_url(text), "{text}");
        assert_eq!(Url::parse(text).ok().map(|url| (url.endpoint, url.export)), right, "{text}");
    }
    for path in ["/dev/nbd0", "nbd", "disk", "./nbd://x", "http://x/y"] {
        assert!(!is_url(path), "{path}");
    }
    assert!(Url::parse(&format!("nbd://h/{}", "x".repeat(4097))).is_err());
}

#[test]
fn a_server_cannot_inform_for_ever() {
    let (mut negotiation, head) = (Negotiation::new("disk"), option_reply(OPT_GO, REP_INFO, &[9, 9]));
    let taken = (0..1000).take_while(|_| negotiation.data_len(&head).is_ok()).count();
    assert_eq!(taken, 64);
}

proptest! {
    #[test]
    fn headers_survive_the_wire(kind in any::<u16>(), code in any::<u32>(), cookie in any::<u64>(), data in vec(any::<u8>(), 0..40)) {
        let request = Request { flags: kind, kind, cookie, offset: cookie, len: code };
        prop_assert_eq!(Request::parse(&request.encode()), Some(request));
        let reply = SimpleReply { cookie, code };
        prop_assert_eq!(SimpleReply::parse(&reply.encode()), Some(reply));
        let len = data.len() as u32;
        prop_assert_eq!(OptionHeader::parse(&option(code, &data)), Some(OptionHeader { option: code, len }));
        let header = OptionReplyHeader { option: code, kind: code, len };
        prop_assert_eq!(OptionReplyHeader::parse(&option_reply(code, code, &data)), Some(header));
    }

    #[test]
    fn any_bytes_of_a_server_are_bounded_or_refused(bytes in vec(any::<u8>(), 0..60), kinds in vec((any::<u32>(), vec(any::<u8>(), 0..30)), 0..80)) {
        let mut negotiation = Negotiation::new("disk");
        let _ = negotiation.greeted(&bytes);
        if let Ok((_, len)) = negotiation.data_len(&bytes) {
            prop_assert!(len <= crate::STREAM_HEAD_MAX);
        }
        for (kind, data) in kinds {
            for kind in [kind, kind % 5, (kind % 12) | (1 << 31)] {
                match negotiation.answered(kind, &data) {
                    Ok(Some(export)) => prop_assert!(export.piece() >= 4096 && export.len() <= export.size),
                    Ok(None) => {}
                    Err(RemoteError::Transient(text) | RemoteError::Fatal(text)) => prop_assert!(text.len() < 4096),
                }
            }
        }
    }

    #[test]
    fn only_replies_to_what_was_asked_are_taken(replies in vec((0u64..8, prop_oneof![Just(0u32), any::<u32>()]), 0..20), sent in 0usize..6) {
        let mut replay_log = ReplayLog::default();
        let tasks = [write(0, 1), Task::Read { offset: 0, len: 512 }, Task::Flush, write(4096, 2), Task::Flush];
        let completions: Vec<_> = tasks.into_iter().map(|task| replay_log.ask(task, 0).unwrap()).collect();
        (0..sent).for_each(|_| drop(replay_log.next_request()));
        for (cookie, code) in replies {
            let reply = SimpleReply { cookie, code };
            match replay_log.payload(reply) {
                Ok(len) => {
                    prop_assert!(cookie >= 1 && cookie <= sent as u64, "it was asked");
                    prop_assert!(len == 0 || (len == 512 && cookie == 2), "the room is what was asked for");
                    let _ = replay_log.answered(reply, Buf::empty());
                }
                Err(_) => prop_assert!(replay_log.answered(reply, Buf::empty()).is_err()),
            }
        }
        prop_assert!(replay_log.unflushed() <= 8192);
        drop(completions);
    }

    #[test]
    fn no_url_panics_the_parser(text in "(nbd|nbds|nbd\\+unix)://[a-z0-9:%/?=\\[\\]@&.-]{0,30}") {
        let _ = Url::parse(&text);
    }
}
