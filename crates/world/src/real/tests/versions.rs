//! Frames of another version.

use types::wire::{HeaderError, TAGGED_LEN};

use super::*;

#[test]
fn a_short_frame_of_an_older_version_is_known_as_one() {
    on_each(|world| async move {
        let listener = world.listen("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.address()).unwrap();
        let (_sender, mut receiver) = listener.accept().await.unwrap().split();
        let mut older = frame(9, b"no".to_vec(), Buf::empty());
        older.header.version = 20;
        let bytes = older.encode_header(None).unwrap();
        stream.write_all(&[&bytes[..TAGGED_LEN], b"no"].concat()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let error = receiver.recv_within(ANY).await.unwrap_err();
        let error = error.get_ref().and_then(|inner| inner.downcast_ref::<HeaderError>());
        assert_eq!(error, Some(&HeaderError::Version(20)));
    });
}
