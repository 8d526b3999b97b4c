//! How a connection is opened: to a server, or to whichever server the sentinels call the master.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, RedisConnectionInfo, TlsCertificates, Value, io::tcp::TcpSettings,
    io::tcp::socket2::TcpKeepalive,
};

use super::trouble::{Trouble, refusal};
use super::url::{Login, Place, Settings};

/// How long opening a connection may take, unless an answer has to come sooner.
const OPEN_MAX: Duration = Duration::from_secs(2);
/// An idle connection that leads nowhere is noticed after about this long.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How much is written at once, and how many requests wait to be.
const WRITE_BYTES: usize = 256 << 10;
const QUEUE: usize = 4096;

/// Where to connect to.
#[derive(Clone)]
pub(super) enum To {
    Place(Place),
    /// The master called so, as these sentinels say.
    Master(Vec<Place>, String),
}

#[derive(Clone)]
pub(super) struct Dial {
    to: To,
    settings: Arc<Settings>,
    certificates: Option<Arc<TlsCertificates>>,
    /// Counts the connections for commands, to whichever server of the store.
    opened: Arc<AtomicU64>,
}

/// What hears the messages of a connection that listens.
pub(super) type OnPush = Box<dyn Fn(PushInfo) + Send + Sync>;

impl Dial {
    pub(super) fn new(to: To, settings: Arc<Settings>, roots: Option<Vec<u8>>) -> Self {
        let certificates = roots.map(|roots| {
            Arc::new(TlsCertificates {
                client_tls: None,
                root_cert: Some(roots),
            })
        });
        Self {
            to,
            settings,
            certificates,
            opened: Arc::default(),
        }
    }

    /// How many connections for commands were opened so far, here and by those [at](Self::at) other
    /// servers.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// The same for another server.
    pub(super) fn at(&self, place: Place) -> Self {
        Self {
            to: To::Place(place),
            ..self.clone()
        }
    }

    /// Whose host a server means when it does not name itself.
    pub(super) fn host(&self) -> &str {
        match &self.to {
            To::Place(place) => &place.host,
            To::Master(..) => "",
        }
    }

    /// A connection for commands.
    pub(super) async fn open(&self) -> Result<MultiplexedConnection, Trouble> {
        let connection = self.reach(None).await?;
        // Before anything is asked over it.
        self.opened.fetch_add(1, Ordering::AcqRel);
        Ok(connection)
    }

    /// A connection that listens.
    pub(super) async fn open_to_listen(
        &self,
        on_push: OnPush,
    ) -> Result<MultiplexedConnection, Trouble> {
        self.reach(Some(on_push)).await
    }

    async fn reach(&self, on_push: Option<OnPush>) -> Result<MultiplexedConnection, Trouble> {
        match &self.to {
            To::Place(place) => {
                self.connect(place, &self.settings.login, self.settings.db, on_push)
                    .await
            }
            To::Master(sentinels, name) => {
                let place = self.master(sentinels, name).await?;
                let login = &self.settings.login;
                let mut connection = self
                    .connect(&place, login, self.settings.db, on_push)
                    .await?;
                // A sentinel may be behind: what was the master may follow another one by now.
                if !is_master(&mut connection).await? {
                    let why = "the sentinels are not yet agreed on a master";
                    return Err(Trouble::NoConnection(why.to_owned()));
                }
                Ok(connection)
            }
        }
    }

    async fn connect(
        &self,
        place: &Place,
        login: &Login,
        db: i64,
        on_push: Option<OnPush>,
    ) -> Result<MultiplexedConnection, Trouble> {
        let limit = self.settings.answer_within;
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit.min(OPEN_MAX)))
            .set_response_timeout(Some(limit))
            .set_pipeline_buffer_size(QUEUE)
            .set_write_backpressure_boundary(WRITE_BYTES);
        let protocol = match &on_push {
            Some(_) => ProtocolVersion::RESP3,
            None => ProtocolVersion::RESP2,
        };
        if let Some(on_push) = on_push {
            config = config.set_push_sender(move |push| {
                on_push(push);
                Ok::<_, ()>(())
            });
        }
        let info = self.info(place, login, db, protocol);
        let client = match &self.certificates {
            Some(certificates) if self.settings.tls => {
                Client::build_with_tls(info, TlsCertificates::clone(certificates))
            }
            Some(_) | None => Client::open(info),
        };
        let opened = async {
            let client = client?;
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        };
        opened.await.map_err(|error| Trouble::connecting(&error))
    }

    fn info(
        &self,
        at: &Place,
        login: &Login,
        db: i64,
        protocol: ProtocolVersion,
    ) -> ConnectionInfo {
        let mut redis = RedisConnectionInfo::default()
            .set_db(db)
            .set_protocol(protocol)
            .set_lib_name("onlyonce", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &login.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &login.password {
            redis = redis.set_password(password);
        }
        let address = if self.settings.tls {
            ConnectionAddr::TcpTls {
                host: at.host.clone(),
                port: at.port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(at.host.clone(), at.port)
        };
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE / 3);
        address
            .into_connection_info()
            .expect("an address needs no parsing")
            .set_tcp_settings(
                TcpSettings::default()
                    .set_nodelay(true)
                    .set_keepalive(keepalive),
            )
            .set_redis_settings(redis)
    }

    /// Asks one sentinel after the other where the master is.
    async fn master(&self, sentinels: &[Place], name: &str) -> Result<Place, Trouble> {
        let mut trouble = Trouble::NoMaster;
        for sentinel in sentinels {
            match self.ask_sentinel(sentinel, name).await {
                Ok(Some(place)) => return Ok(place),
                Ok(None) => {}
                Err(found) => trouble = found,
            }
        }
        Err(trouble)
    }

    async fn ask_sentinel(&self, sentinel: &Place, name: &str) -> Result<Option<Place>, Trouble> {
        let login = &self.settings.sentinel_login;
        let mut connection = self.connect(sentinel, login, 0, None).await?;
        let mut command = Cmd::new();
        command
            .arg("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(name);
        let told = answer(&mut connection, &command).await?;
        if told == Value::Nil {
            return Ok(None);
        }
        let text = |value: &Value| -> Option<String> {
            let Value::BulkString(bytes) = value else {
                return None;
            };
            Some(str::from_utf8(bytes).ok()?.to_owned())
        };
        let Value::Array(parts) = told else {
            return Err(Trouble::Odd);
        };
        let host = parts.first().and_then(text).ok_or(Trouble::Odd)?;
        let port = parts
            .get(1)
            .and_then(text)
            .and_then(|port| port.parse().ok());
        let port = port.ok_or(Trouble::Odd)?;
        Ok(Some(Place { host, port }))
    }
}

async fn is_master(connection: &mut MultiplexedConnection) -> Result<bool, Trouble> {
    let Value::Array(parts) = answer(connection, &::redis::cmd("ROLE")).await? else {
        return Err(Trouble::Odd);
    };
    Ok(parts.first() == Some(&Value::BulkString(b"master".to_vec())))
}

async fn answer(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, Trouble> {
    let sent = connection.send_packed_command(command).await;
    let value = sent.map_err(|error| Trouble::asking(&error))?;
    match refusal(&value) {
        Some(trouble) => Err(trouble),
        None => Ok(value),
    }
}
