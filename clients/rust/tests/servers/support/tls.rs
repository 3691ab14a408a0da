//! Certificates, and a server that shows one of them.

use std::process::Command;

use dsync_client::redis::{Client, TlsCertificates};
use dsync_testkit::{Folder, Server, next_port};

/// An authority, and a certificate that it has given to 127.0.0.1.
pub struct Certificates {
    folder: Folder,
}

impl Certificates {
    pub fn make() -> Certificates {
        let made = Certificates {
            folder: Folder::new(),
        };
        // Two authorities of one name would differ in their signatures only.
        let name = format!("/CN=authority {}", next_port());
        let kind = [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ];
        let authority = [
            "req", "-x509", "-subj", &name, "-keyout", "ca.key", "-out", "ca.pem",
        ];
        made.openssl(&[&authority[..], &kind].concat());
        let request = [
            "req",
            "-subj",
            "/CN=server",
            "-keyout",
            "key",
            "-out",
            "request",
        ];
        made.openssl(&[&request[..], &kind].concat());
        std::fs::write(made.folder.path("names"), "subjectAltName=IP:127.0.0.1").expect("a file");
        let sign = "x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out pem";
        made.openssl(&sign.split(' ').collect::<Vec<_>>());
        made
    }

    fn openssl(&self, words: &[&str]) {
        let made = Command::new("openssl")
            .args(words)
            .current_dir(self.folder.dir())
            .output();
        let made = made.expect("openssl");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
    }

    /// Starts a server with this certificate. Returns it with its port for TLS; `None` where it was built without that.
    pub fn server(&self) -> Option<(Server, u16)> {
        let port = next_port();
        let server = Server::builder()
            .config("tls-port", port)
            .config("tls-cert-file", self.folder.text("pem"))
            .config("tls-key-file", self.folder.text("key"))
            .config("tls-ca-cert-file", self.folder.text("ca.pem"))
            .config("tls-auth-clients", "no");
        Some((server.try_start().ok()?, port))
    }

    /// Has a server show this certificate from now on, and closes its connections.
    pub fn show(&self, admin: &mut dsync_testkit::Client) {
        let (certificate, key) = (self.folder.text("pem"), self.folder.text("key"));
        let set = format!("CONFIG SET tls-cert-file {certificate} tls-key-file {key}");
        assert_eq!(admin.ask(set), "OK");
        admin.ask("CLIENT KILL TYPE normal");
    }

    /// A client of this port of a host that trusts the authority.
    pub fn client(&self, host: &str, port: u16) -> Client {
        let authority = std::fs::read(self.folder.path("ca.pem")).expect("the authority");
        let certificates = TlsCertificates {
            client_tls: None,
            root_cert: Some(authority),
        };
        let url = format!("rediss://{host}:{port}");
        Client::build_with_tls(url, certificates).expect("certificates")
    }
}
