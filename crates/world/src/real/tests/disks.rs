//! Disks.

use super::*;

#[test]
fn a_disk_keeps_what_is_written() {
    on_each_disk("keeps", |world, path| async move {
        let disk = world.create_disk(&path, 1 << 20).await.unwrap();
        assert_eq!(disk.len(), 1 << 20);
        assert!(disk.read(0, 1 << 20).await.unwrap().iter().all(|&byte| byte == 0));
        // More parts than one system call takes, some of them empty.
        let bytes = noise(100_000);
        let mut parts: Vec<Buf> = bytes.chunks(700).map(Buf::copy_of).collect();
        parts.insert(0, Buf::empty());
        parts.insert(70, Buf::empty());
        parts.push(Buf::empty());
        disk.write(1234, parts).await.unwrap();
        disk.write(5, Vec::new()).await.unwrap();
        disk.write(1 << 19, vec![Buf::copy_of(b"shoal")]).await.unwrap();
        disk.sync().await.unwrap();
        let again = disk.clone();
        assert_eq!(*again.read(1234, bytes.len()).await.unwrap(), *bytes);
        drop((disk, again));
        let disk = world.open_disk(&path, DiskMode::Buffered).await.unwrap();
        assert_eq!((*disk.read(1 << 19, 5).await.unwrap()).to_vec(), b"shoal");
        assert_eq!(disk.read(99, 0).await.unwrap().len(), 0);
        let read = disk.read(0, 1 << 20).await.unwrap();
        assert_eq!(read.as_ptr() as usize % BLOCK, 0);
    });
}

#[test]
fn a_disk_ends_where_it_ends() {
    on_each_disk("ends", |world, path| async move {
        let disk = world.create_disk(&path, 10_000).await.unwrap();
        for (offset, len) in [(9_999, 2), (10_000, 1), (0, 10_001), (1 << 40, 4096)] {
            let error = disk.read(offset, len).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
            assert!(error.to_string().contains(&path), "{error}");
        }
        assert_eq!(disk.read(9_999, 1).await.unwrap().len(), 1);
    });
}

#[test]
fn a_disk_is_shared_by_threads_and_locked_while_any_has_it() {
    on_each_disk("shared", |world, path| async move {
        let disk = world.create_disk(&path, 1 << 20).await.unwrap();
        let shared = disk.shared();
        drop(disk);
        assert_eq!(
            world.open_disk(&path, DiskMode::Buffered).await.err().unwrap().kind(),
            ErrorKind::WouldBlock
        );
        let other = thread::spawn(move || {
            let disk = shared.disk();
            World::new().unwrap().block_on("other", async {
                disk.write(5000, vec![Buf::copy_of(b"shoal")]).await.unwrap();
                (disk.len(), disk.read(5000, 5).await.unwrap().to_vec())
            })
        });
        assert_eq!(other.join().unwrap(), (1 << 20, b"shoal".to_vec()));
        let disk = world.open_disk(&path, DiskMode::Buffered).await.unwrap();
        assert_eq!(*disk.read(5000, 5).await.unwrap(), *b"shoal");
    });
}

#[test]
fn a_disk_has_one_owner() {
    on_each_disk("owner", |world, path| async move {
        let disk = world.create_disk(&path, 4096).await.unwrap();
        assert_eq!(world.create_disk(&path, 4096).await.err().unwrap().kind(), ErrorKind::AlreadyExists);
        let error = world.open_disk(&path, DiskMode::Buffered).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(error.to_string().contains(&path), "{error}");
        drop(disk);
        world.open_disk(&path, DiskMode::Buffered).await.unwrap();
        let missing = world.open_disk(&format!("{path}x"), DiskMode::Buffered).await.err().unwrap();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(world.open_disk("/", DiskMode::Buffered).await.is_err());
        assert_eq!(
            world.open_disk("/dev/null", DiskMode::Buffered).await.err().unwrap().kind(),
            ErrorKind::InvalidInput
        );
    });
}
