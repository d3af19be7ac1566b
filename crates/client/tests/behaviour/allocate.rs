//! `fallocate` makes files longer and writes nothing: the fakes count what arrives, and sizes and bytes are compared.

use client::{ClientError, SetAttrs};
use types::Refusal;
use types::limits::FILE_SIZE_MAX;

use super::{Cluster, OWNER, ROOT, STRIPE, pattern};

fn refused<T>(refusal: Refusal) -> Result<T, ClientError> {
    Err(ClientError::Refused(refusal))
}

#[test]
fn a_file_grows_without_bytes_and_durably() {
    let cluster = Cluster::new(7, "2+1", 3);
    cluster.run(async {
        let (_, session) = cluster.mount("client").await;
        let opened = session.create(ROOT, b"f", OWNER).await.unwrap();
        let (handle, inode) = (opened.handle, opened.attr.inode);
        session.write(handle, 10, &pattern(100, 1)).await.unwrap();
        let (end, before) = (100 * STRIPE as u64, session.getattr(inode).await.unwrap());
        session.allocate(handle, 5..end, false).await.unwrap();
        assert_eq!(cluster.known().spans, 1, "what was written, and nothing else");
        let attr = session.getattr(inode).await.unwrap();
        assert_eq!((attr.size, attr.mtime > before.mtime), (end, true));
        assert_eq!(cluster.known().files[&inode].size, end, "the service has stored it");
        assert_eq!(&*session.read(handle, 10, 100).await.unwrap(), &pattern(100, 1)[..]);
        assert!(session.read(handle, 110, STRIPE).await.unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(session.read(handle, end - 7, 100).await.unwrap().len(), 7);

        // Within the file, and with another size kept, nothing changes.
        let attr = session.getattr(inode).await.unwrap();
        session.allocate(handle, 0..5000, false).await.unwrap();
        session.allocate(handle, end..2 * end, true).await.unwrap();
        assert_eq!(session.getattr(inode).await.unwrap(), attr);
        session.write(handle, end + 9, b"more").await.unwrap();
        session.fsync(handle).await.unwrap();
        assert_eq!(session.getattr(inode).await.unwrap().size, end + 13);

        // What a shorter file has left is zeros when it grows again.
        let cut = SetAttrs { size: Some(50), ..SetAttrs::default() };
        session.setattr(inode, cut).await.unwrap();
        session.allocate(handle, 0..200, false).await.unwrap();
        let read = session.read(handle, 0, 500).await.unwrap();
        assert_eq!((read.len(), &read[10..50]), (200, &pattern(100, 1)[..40]));
        assert!(read[50..].iter().all(|byte| *byte == 0));

        assert_eq!(
            session.allocate(handle, 0..FILE_SIZE_MAX + 1, true).await,
            refused(Refusal::FileTooLarge)
        );
        cluster.known().full = true;
        assert_eq!(session.allocate(handle, 0..201, false).await, refused(Refusal::NoSpace));
        assert_eq!(session.allocate(handle, 300..301, true).await, refused(Refusal::NoSpace));
        session.allocate(handle, 0..200, false).await.unwrap();
        session.release(handle).await.unwrap();
        let reader = session.open(inode, false, false).await.unwrap();
        assert_eq!(session.allocate(reader.handle, 0..1, false).await, Err(ClientError::BadHandle));
    });
}

#[test]
fn beside_another_writer_nothing_gets_shorter_or_lost() {
    let cluster = Cluster::new(8, "2+1", 3);
    cluster.run(async {
        let ((_, one), (_, other)) = (cluster.mount("one").await, cluster.mount("other").await);
        let mine = one.create(ROOT, b"f", OWNER).await.unwrap();
        let theirs = other.open(mine.attr.inode, true, false).await.unwrap();
        other.write(theirs.handle, 9000, b"theirs").await.unwrap();
        one.allocate(mine.handle, 0..5000, false).await.unwrap();
        assert_eq!(one.getattr(mine.attr.inode).await.unwrap().size, 9006);
        one.allocate(mine.handle, 0..20_000, false).await.unwrap();
        assert_eq!(other.getattr(mine.attr.inode).await.unwrap().size, 20_000);
        assert_eq!(&*other.read(theirs.handle, 9000, 10).await.unwrap(), b"theirs\0\0\0\0");
        assert_eq!(cluster.known().spans, 1);
    });
}
