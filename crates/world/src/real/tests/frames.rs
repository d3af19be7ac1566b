//! Frames over real sockets.

use super::*;

#[test]
fn frames_of_every_size_come_back() {
    on_each(|world| async move {
        let (near, far) = pair(&world).await;
        assert_eq!(near.peer().split(':').next(), Some("127.0.0.1"));
        world.spawn("test", echo(far));
        let (mut sender, mut receiver) = near.split();
        let sizes = [0, 1, 63, 4096, 8128, 8129, 8192, 8193, 131_072, 1 << 20, PAYLOAD_MAX];
        for (i, payload) in sizes.into_iter().enumerate() {
            for record in [0, 1, 1024, 1025, 9000, RECORD_MAX] {
                if record == RECORD_MAX && payload > 8193 {
                    continue;
                }
                let (record, payload) = (noise(record), Buf::from(noise(payload)));
                sender.send(frame(i as u64, record.clone(), payload.clone())).await.unwrap();
                let back = receiver.recv_within(ANY).await.unwrap().unwrap();
                assert_eq!((back.header.request, back.header.kind), (i as u64, 7));
                assert!(
                    back.record == record && back.payload == payload,
                    "{} {}",
                    record.len(),
                    payload.len()
                );
                assert!(back.payload.is_empty() || (back.payload.as_ptr() as usize).is_multiple_of(BLOCK));
            }
        }
    });
}

#[test]
fn a_batch_arrives_in_order() {
    on_each(|world| async move {
        let (near, far) = pair(&world).await;
        let (mut sender, _open) = near.split();
        world.spawn("test", async move {
            let batch = |i: u64| frame(i, noise(i as usize * 20), Buf::from(noise(i as usize * 700)));
            sender.send_all((0..300).map(batch).collect()).await.unwrap();
            sender.send_all(Vec::new()).await.unwrap();
            sender.send(frame(300, noise(6000), Buf::empty())).await.unwrap();
        });
        let (_sender, mut receiver) = far.split();
        for i in 0..=300 {
            let got = receiver.recv_within(ANY).await.unwrap().unwrap();
            assert_eq!(got.header.request, i);
            assert_eq!(got.payload.len() as u64, if i == 300 { 0 } else { i * 700 });
        }
    });
}

#[test]
fn too_large_a_frame_is_not_sent() {
    on_each(|world| async move {
        let (near, far) = pair(&world).await;
        world.spawn("test", echo(far));
        let (mut sender, mut receiver) = near.split();
        let error = sender.send(frame(1, vec![0; RECORD_MAX + 1], Buf::empty())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        sender.send(frame(2, Vec::new(), Buf::empty())).await.unwrap();
        assert_eq!(receiver.recv_within(ANY).await.unwrap().unwrap().header.request, 2);
    });
}

#[test]
fn what_is_no_frame_is_an_error() {
    let mut good = frame(1, noise(100), Buf::from(noise(20_000)));
    let mut bytes = good.encode_header(None).unwrap().to_vec();
    bytes.extend_from_slice(&good.record);
    bytes.extend_from_slice(&good.payload);
    let damaged = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        bytes
    };
    let cases = [
        (noise(5000), Some(ErrorKind::InvalidData)),
        (damaged(0), Some(ErrorKind::InvalidData)),
        (damaged(40), Some(ErrorKind::InvalidData)),
        (damaged(100), Some(ErrorKind::InvalidData)),
        (damaged(19_000), Some(ErrorKind::InvalidData)),
        (bytes[..1].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (bytes[..63].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (bytes[..64].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (bytes[..164].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (bytes[..bytes.len() - 1].to_vec(), Some(ErrorKind::UnexpectedEof)),
        (Vec::new(), None),
    ];
    on_each(|world| {
        let cases = cases.clone();
        async move {
            let listener = world.listen("127.0.0.1:0").await.unwrap();
            for (bytes, expected) in cases {
                let mut stream = TcpStream::connect(listener.address()).unwrap();
                stream.write_all(&bytes).unwrap();
                drop(stream);
                let (_sender, mut receiver) = listener.accept().await.unwrap().split();
                let got = receiver.recv_within(ANY).await;
                match expected {
                    Some(kind) => {
                        assert_eq!(got.unwrap_err().kind(), kind);
                        assert_eq!(
                            receiver.recv_within(ANY).await.unwrap_err().kind(),
                            ErrorKind::BrokenPipe
                        );
                    }
                    None => {
                        assert!(got.unwrap().is_none());
                        assert!(receiver.recv_within(ANY).await.unwrap().is_none());
                    }
                }
            }
        }
    });
}

#[test]
fn a_header_that_announces_too_much_is_refused_before_the_rest_comes() {
    on_each(|world| async move {
        let listener = world.listen("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.address()).unwrap();
        let header = frame(1, noise(1000), Buf::from(noise(2000))).encode_header(None).unwrap();
        stream.write_all(&header).unwrap();
        let (_sender, mut receiver) = listener.accept().await.unwrap().split();
        assert_eq!(receiver.recv_within(2999).await.unwrap_err().kind(), ErrorKind::InvalidData);
    });
}

#[test]
fn dropping_both_halves_closes_even_under_a_waiting_receive() {
    on_each(|world| async move {
        let (near, far) = pair(&world).await;
        let (sender, mut receiver) = near.split();
        assert!(world.timeout(20_000, receiver.recv_within(ANY)).await.is_none());
        assert_eq!(receiver.recv_within(ANY).await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        drop((sender, receiver));
        let (mut sender, mut receiver) = far.split();
        assert!(world.timeout(2_000_000, receiver.recv_within(ANY)).await.unwrap().unwrap().is_none());
        // The first write after the end may still go out, later ones cannot.
        let mut failed = false;
        for _ in 0..100 {
            failed |= sender.send(frame(1, Vec::new(), Buf::empty())).await.is_err();
            world.sleep(1_000).await;
        }
        assert!(failed);
    });
}

#[test]
fn an_abandoned_send_spoils_the_sender() {
    on_each(|world| async move {
        let (near, _far) = pair(&world).await;
        let (mut sender, _receiver) = near.split();
        let big = BufMut::zeroed(PAYLOAD_MAX).freeze();
        let batch = (0..4).map(|i| frame(i, Vec::new(), big.clone())).collect();
        assert!(world.timeout(200_000, sender.send_all(batch)).await.is_none(), "nobody reads it");
        let error = sender.send(frame(9, Vec::new(), Buf::empty())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn connecting_to_nobody_fails_with_the_address() {
    on_each(|world| async move {
        let listener = world.listen("127.0.0.1:0").await.unwrap();
        let address = listener.address();
        drop(listener);
        let error = world.connect(&address).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains(&address), "{error}");
        assert!(world.connect("no port").await.is_err());
        assert!(world.listen("256.0.0.1:1").await.is_err());
    });
}
