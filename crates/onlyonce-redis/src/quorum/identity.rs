//! Who a server is, as its script says it.

use std::time::Duration;

use ::redis::Value;
use onlyonce_core::async_trait;
use onlyonce_quorum::{Deed, Fault, Identity, Seat, Votes};

use super::member::{Member, bytes};
use crate::value::millis;

#[async_trait]
impl Seat for Member {
    fn name(&self) -> &str {
        &self.seat
    }

    async fn identify(&self, members: &str, deed: &Deed) -> Result<Identity, Fault> {
        let (verb, number, more, joined) = match deed {
            Deed::Read => ("read", 0, String::new(), 0),
            Deed::Found { seen_at } => ("found", millis(*seen_at), String::new(), 0),
            Deed::Seat => ("seat", 0, String::new(), 0),
            Deed::Join { epoch } => ("join", *epoch, String::new(), 0),
            Deed::Admit {
                epoch,
                round,
                joined,
            } => ("admit", *epoch, round.to_string(), millis(*joined)),
            Deed::Raise { epoch, was } => ("raise", *epoch, was.clone(), 0),
            Deed::Demote { epoch } => ("demote", *epoch, String::new(), 0),
        };
        let (number, joined) = (number.to_string(), joined.to_string());
        let args: [&[u8]; 6] = [
            verb.as_bytes(),
            self.seat.as_bytes(),
            members.as_bytes(),
            number.as_bytes(),
            more.as_bytes(),
            joined.as_bytes(),
        ];
        let keys: [&[u8]; 1] = [&self.identity];
        let told = self.run(&self.scripts.identity, &keys, &args).await?;
        let identity = read(&told);
        let identity =
            identity.ok_or_else(|| Fault::Away("its identity is not understood".to_owned()))?;
        self.heard(identity.now);
        Ok(identity)
    }
}

fn read(told: &[Value]) -> Option<Identity> {
    let text = |at: usize| str::from_utf8(bytes(told.get(at)?)?).ok();
    let number = |at: usize| text(at)?.parse::<u64>().ok();
    let Value::Int(now) = told.first()? else {
        return None;
    };
    Some(Identity {
        now: Duration::from_millis(u64::try_from(*now).ok()?),
        seat: text(1)?.to_owned(),
        members: text(2)?.to_owned(),
        epoch: number(3)?,
        votes: match text(4)? {
            "" => Votes::Nothing,
            "founding" => Votes::Founding,
            "waiting" => Votes::Waiting,
            "yes" => Votes::Yes,
            _ => return None,
        },
        joined: Duration::from_millis(number(5)?),
        longest: Duration::from_millis(number(6)?),
        round: number(7)?,
        cast: number(8)?,
    })
}
