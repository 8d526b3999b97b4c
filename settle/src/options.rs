//! The command line.

use std::env;
use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::plan::{Bug, Kind, Plan, Store, plans};
use crate::round::Extent;

/// Every kind on every store, unless less is asked for.
#[derive(Args)]
pub(crate) struct Options {
    /// What is behind the keys [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// The stores [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    stores: Vec<Store>,
    /// Try so many boundaries of each plan, drawn at random [default: every one]
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Further rounds of each plan, with two kills at random moments
    #[arg(long, value_name = "N", default_value_t = 10)]
    random: usize,
    /// Where all random choices come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plans at the same time
    #[arg(long, default_value_t = 6)]
    pub(crate) jobs: usize,
    /// The gateway [default: `onlyonce` beside this program]
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,
    /// A bug of the services in this program: good is what finds a violation
    #[arg(long, value_enum)]
    pub(crate) planted_bug: Option<Bug>,
}

impl Options {
    pub(crate) fn plans(&self) -> Result<Vec<Plan>, Failure> {
        let plans = plans(&self.kinds, &self.stores, self.planted_bug);
        if plans.is_empty() {
            return Err(Failure::new(
                "nothing to do: no plan is of these kinds, on these stores and with this bug",
            ));
        }
        Ok(plans)
    }

    pub(crate) fn extent(&self, number: u64) -> Extent {
        Extent {
            seed: self.seed.wrapping_mul(1000).wrapping_add(number),
            sample: self.sample,
            random: self.random,
        }
    }

    pub(crate) fn gateway(&self) -> Result<PathBuf, Failure> {
        let ourselves = env::current_exe().map_err(Failure::doing("find this program"))?;
        let beside = ourselves.with_file_name("onlyonce");
        let path = self.gateway.clone().unwrap_or(beside);
        if !path.is_file() {
            let path = path.display();
            return Err(Failure::new(format!(
                "there is no gateway at {path}: build onlyonce-cli, or use `cargo xtask settle`"
            )));
        }
        Ok(path)
    }
}
