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
        std::fs::write(made.folder.path("names"), "subjectAltName=IP:127.0.0.1").expect("a file");
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        // Two authorities of one name would differ in their signatures only.
        let authority = format!(
            "-subj /CN=authority-{} -keyout ca.key -out ca.pem",
            next_port()
        );
        made.openssl(&format!("req -x509 {key} {authority}"));
        made.openssl(&format!(
            "req {key} -subj /CN=server -keyout key -out request"
        ));
        let by = "-CA ca.pem -CAkey ca.key -CAcreateserial -extfile names";
        made.openssl(&format!("x509 -req -in request {by} -out pem"));
        made
    }

    fn openssl(&self, words: &str) {
        let mut openssl = Command::new("openssl");
        let openssl = openssl
            .args(words.split(' '))
            .current_dir(self.folder.dir());
        let made = openssl.output().expect("openssl");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{said}");
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
        match server.try_start() {
            Ok(server) => Some((server, port)),
            Err(how) => {
                let says = |it: &str| how.contains(it);
                assert!(says("TLS support") || says(">>> 'tls-"), "{how}");
                eprintln!("left out: this server was built without TLS");
                None
            }
        }
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
