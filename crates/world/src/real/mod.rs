//! The real body: not there yet.

use std::future::Future;
use std::io;

use types::Buf;

use crate::Frame;

fn absent<T>() -> io::Result<T> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[derive(Clone)]
pub(crate) enum World {}

impl World {
    pub(crate) fn new() -> io::Result<World> {
        absent()
    }

    pub(crate) fn block_on<F: Future>(&self, _: F) -> F::Output {
        match *self {}
    }

    pub(crate) fn now(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn wall(&self) -> u64 {
        match *self {}
    }

    pub(crate) async fn sleep(&self, _: u64) {
        match *self {}
    }

    pub(crate) async fn timeout<F: Future>(&self, _: u64, _: F) -> Option<F::Output> {
        match *self {}
    }

    pub(crate) fn random(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn random_bytes(&self, _: &mut [u8]) {
        match *self {}
    }

    pub(crate) fn spawn(&self, _: impl Future<Output = ()> + 'static) {
        match *self {}
    }

    pub(crate) async fn yield_now(&self) {
        match *self {}
    }

    pub(crate) async fn listen(&self, _: &str) -> io::Result<Listener> {
        match *self {}
    }

    pub(crate) async fn connect(&self, _: &str) -> io::Result<Conn> {
        match *self {}
    }

    pub(crate) async fn open_disk(&self, _: &str) -> io::Result<Disk> {
        match *self {}
    }

    pub(crate) async fn create_disk(&self, _: &str, _: u64) -> io::Result<Disk> {
        match *self {}
    }
}

pub(crate) enum Listener {}

impl Listener {
    pub(crate) fn address(&self) -> String {
        match *self {}
    }

    pub(crate) async fn accept(&self) -> io::Result<Conn> {
        match *self {}
    }
}

pub(crate) enum Conn {}

impl Conn {
    pub(crate) fn peer(&self) -> String {
        match *self {}
    }

    pub(crate) fn split(self) -> (Sender, Receiver) {
        match self {}
    }
}

pub(crate) enum Sender {}

impl Sender {
    pub(crate) async fn send(&mut self, _: Frame) -> io::Result<()> {
        match *self {}
    }

    pub(crate) async fn send_all(&mut self, _: Vec<Frame>) -> io::Result<()> {
        match *self {}
    }
}

pub(crate) enum Receiver {}

impl Receiver {
    pub(crate) async fn recv(&mut self) -> io::Result<Option<Frame>> {
        match *self {}
    }
}

#[derive(Clone)]
pub(crate) enum Disk {}

impl Disk {
    pub(crate) fn len(&self) -> u64 {
        match *self {}
    }

    pub(crate) async fn read(&self, _: u64, _: usize) -> io::Result<Buf> {
        match *self {}
    }

    pub(crate) async fn write(&self, _: u64, _: Vec<Buf>) -> io::Result<()> {
        match *self {}
    }

    pub(crate) async fn sync(&self) -> io::Result<()> {
        match *self {}
    }
}
