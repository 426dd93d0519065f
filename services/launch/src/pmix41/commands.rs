//! The commands of a client, and their answers.

use super::{
    Expected, OnMiss, Session, Step, USUAL_WAIT,
    batch::{Batch, Outcome},
    job::job_data,
    values::{Attributes, MAX_PROCS, group_of, name_of, take_group},
};
use petasos_pmix::server::packing::{
    ANY_RANK, BAD, Decoded, Reader, Refusal, UNSUPPORTED, WILDCARD, kind, put_proc, put_size,
    put_status, put_text, put_unsigned, put_value,
};
use petasos_pmix::{
    Error, Node, Proc, RESERVED, Termination, Value,
    event::{NO_CACHE, NON_DEFAULT, Range},
    job::JobMap,
    message::{Answer, Persistence, Published, Request},
    status,
};
use rustix::process::Signal;
use std::{collections::BTreeSet, time::Duration};

/// The command that carries an event, in both directions.
pub(super) const EVENT: u8 = 12;
/// The targets of an event.
pub(super) const IN_RANGE: &str = "pmix.evrange";
/// Keys in one message.
const MAX_KEYS: usize = 4096;
/// How long a lookup waits that waits and names no time.
const PATIENCE: Duration = Duration::from_secs(300);
/// Attributes that a client may require.
const TIMEOUT: &str = "pmix.timeout";
const IMMEDIATE: &str = "pmix.immediate";
const RANGE: &str = "pmix.range";
const PERSISTENCE: &str = "pmix.persist";
const WAIT: &str = "pmix.wait";
const COLLECT: &str = "pmix.collect";
const FENCE: [&str; 2] = [COLLECT, TIMEOUT];
const OPTIONAL: &str = "pmix.optional";
const GET: [&str; 3] = [IMMEDIATE, TIMEOUT, OPTIONAL];
const PUBLISH: [&str; 3] = [RANGE, PERSISTENCE, TIMEOUT];
const LOOKUP: [&str; 3] = [RANGE, TIMEOUT, WAIT];
const UNPUBLISH: [&str; 2] = [RANGE, TIMEOUT];
const QUERY: [&str; 3] = ["pmix.nspace", "pmix.procid", "pmix.rank"];
/// The targets of an event, whether it is kept, and information for handlers that know of it.
const NOTIFY: [&str; 13] = [
    IN_RANGE,
    NON_DEFAULT,
    NO_CACHE,
    "pmix.evproc",
    "pmix.evaffected",
    "pmix.evproxy",
    "pmix.evtext",
    "pmix.evtstamp",
    "pmix.evterm.sess",
    "pmix.evterm.job",
    "pmix.evterm.node",
    "pmix.evterm.proc",
    "pmix.exit.code",
];
/// The client keeps its chain of handlers itself.
const REGISTER: [&str; 15] = [
    "pmix.evname",
    "pmix.evfirst",
    "pmix.evlast",
    "pmix.evfirstcat",
    "pmix.evlastcat",
    "pmix.evbefore",
    "pmix.evafter",
    "pmix.evprepend",
    "pmix.evappend",
    "pmix.evone",
    "pmix.evobject",
    "pmix.evproc",
    "pmix.evaffected",
    IN_RANGE,
    RANGE,
];
/// Job control by signals. The last one names the signal.
const CONTROL: [&str; 5] = [
    "pmix.jctrl.kill",
    "pmix.jctrl.term",
    "pmix.jctrl.pause",
    "pmix.jctrl.resume",
    "pmix.jctrl.sig",
];
/// What can be queried beside the keys of the engine.
const NAMESPACES: &str = "pmix.qry.ns";
const PROCESSES: &str = "pmix.qry.ptable";
const LOCAL_PROCESSES: &str = "pmix.qry.lptable";
const QUERIES: &str = "pmix.qry.keys";
/// The engine's keys.
const ENGINES: &str =
    "petasos.jobs,petasos.nodes,petasos.processes,petasos.published,petasos.events.cached";

impl Session {
    pub(super) fn command(
        &mut self,
        tag: u32,
        mut from: Reader<'_>,
        job: &JobMap,
    ) -> Decoded<Vec<Step>> {
        from.begin()?;
        let from = &mut from;
        Ok(match from.byte()? {
            0 => {
                let data = job_data(job, self.node, &self.around, &self.directory, self.rank);
                vec![self.say(tag, &data)]
            }
            1 => vec![self.abort(tag, from)?],
            2 => vec![self.commit(tag, from)?],
            3 => vec![self.fence(tag, from, job)?],
            4 => vec![self.get(tag, from, job)?],
            5 => vec![self.ask(Expected::Status(tag), Request::Finalize)],
            6 => self.publish(tag, from)?,
            7 => vec![self.lookup(tag, from)?],
            8 => vec![self.unpublish(tag, from)?],
            EVENT => vec![self.notify(tag, from, job)?],
            13 => vec![self.register(tag, from)?],
            14 => self.deregister(from),
            15 => self.query(tag, from, job)?,
            18 => vec![self.control(tag, from, job)?],
            // Spawn, connect, log, allocation, monitoring, credentials, output, groups and fabrics
            // are not offered.
            _ => return Err(UNSUPPORTED),
        })
    }

    /// Whichever processes are to be aborted, the job is: without some of its ranks it is of no
    /// use.
    fn abort(&mut self, tag: u32, from: &mut Reader<'_>) -> Decoded<Step> {
        let code = from.status()?;
        from.begin()?;
        let message = from.text()?;
        let message = if message.is_empty() { "it called abort".to_owned() } else { message };
        Ok(self.ask(Expected::Status(tag), Request::Abort { status: code, message }))
    }

    fn commit(&mut self, tag: u32, from: &mut Reader<'_>) -> Decoded<Step> {
        let entries = self.split.take_commit(from)?;
        Ok(self.ask(Expected::Commit(tag), Request::Commit(entries)))
    }

    fn fence(&mut self, tag: u32, from: &mut Reader<'_>, job: &JobMap) -> Decoded<Step> {
        from.begin()?;
        let count = from.unsigned()?;
        from.begin()?;
        let group = take_group(from, count, job, self.node)?;
        let with = Attributes::take(from)?;
        with.are_met_by(&FENCE)?;
        let (collect, timeout) = (with.is_set(COLLECT), with.timeout());
        let group = Some(group).filter(|group| !group.is_empty());
        Ok(self.ask(Expected::Status(tag), Request::Fence { group, collect, timeout }))
    }

    fn get(&mut self, tag: u32, from: &mut Reader<'_>, job: &JobMap) -> Decoded<Step> {
        from.begin()?;
        let name = from.text()?;
        from.begin()?;
        let rank = from.rank()?;
        let with = Attributes::take(from)?;
        with.are_met_by(&GET)?;
        // Without a key: the whole business card.
        let key = match from.is_empty() {
            true => String::new(),
            false => {
                from.begin()?;
                from.text()?
            }
        };
        if name != job.namespace() {
            return Err(Refusal(status::NOT_FOUND));
        }
        let rank = match rank {
            ANY_RANK => return Ok(self.get_any(tag, key, &with)),
            WILDCARD => Proc::JOB,
            rank => rank,
        };
        let (proc, timeout) = (job.proc(rank), with.timeout());
        // A program that names a time waits for the key. Another one waits for a moment, once the
        // process has committed without it. Reserved keys do not come later.
        let immediate = with.is_set(IMMEDIATE) || with.is_set(OPTIONAL);
        let wait = timeout.is_some() && !immediate;
        let may_come = !immediate && !wait && rank != Proc::JOB && !key.starts_with(RESERVED);
        let on_miss = if may_come && !key.is_empty() { OnMiss::Wait } else { OnMiss::Refuse };
        let expected = Expected::BusinessCard { tag, proc, key: key.clone(), on_miss };
        Ok(self.ask(expected, Request::Get { proc, key, timeout, immediate, wait }))
    }

    /// A key of any process. It is waited for like one of a process that has committed.
    fn get_any(&mut self, tag: u32, key: String, with: &Attributes) -> Step {
        let timeout = with.timeout();
        let comes = !key.is_empty() && !key.starts_with(RESERVED);
        let patience = match with.is_set(IMMEDIATE) || with.is_set(OPTIONAL) || !comes {
            true => Duration::ZERO,
            false => timeout.unwrap_or(USUAL_WAIT),
        };
        let timed = timeout.is_some();
        let number = self.pending.add(Expected::Any { tag, key: key.clone(), timed });
        Step::Find(number, key, patience)
    }

    fn publish(&mut self, tag: u32, from: &mut Reader<'_>) -> Decoded<Vec<Step>> {
        user(from)?;
        let mut with = Attributes::take(from)?;
        with.are_met_by(&PUBLISH)?;
        let range = range_of(with.remove(RANGE))?;
        let persistence = match with.remove(PERSISTENCE).map(|value| value.as_u64()) {
            Some(Some(1)) => Persistence::FirstRead,
            Some(Some(2)) => Persistence::Process,
            // Until it is unpublished, or for the life of the application or the session: these are
            // one here.
            None | Some(Some(0 | 3 | 4)) => Persistence::Session,
            _ => return Err(BAD),
        };
        with.all.retain(|(key, _)| !key.starts_with(petasos_pmix::RESERVED));
        if with.all.is_empty() {
            return Err(BAD);
        }
        self.batches.insert(tag, Batch::publish(with.all.len()));
        let mut steps = Vec::new();
        for (key, value) in with.all {
            let expected = Expected::Part(tag, key.clone());
            let range = range.clone();
            steps.push(
                self.ask(expected, Request::Publish(Published { key, value, range, persistence })),
            );
        }
        Ok(steps)
    }

    fn lookup(&mut self, tag: u32, from: &mut Reader<'_>) -> Decoded<Step> {
        user(from)?;
        let keys = keys(from)?;
        let with = Attributes::take(from)?;
        with.are_met_by(&LOOKUP)?;
        // How many of them to wait for; 0: all.
        let least = match with.get(WAIT).map(Value::as_u64) {
            None => None,
            Some(least) => Some(least.and_then(|least| least.try_into().ok()).ok_or(BAD)?),
        };
        let wait = least.map(|_: u32| with.timeout().unwrap_or(PATIENCE));
        // A lookup that waits has said how many are enough.
        let whole = if least.is_some() { 0 } else { keys.iter().collect::<BTreeSet<_>>().len() };
        let within = match with.get(RANGE) {
            None => Range::Global,
            given => range_of(given.cloned())?,
        };
        let least = least.unwrap_or_default();
        let what = Request::Lookup { keys, wait, least, within };
        Ok(self.ask(Expected::Lookup(tag, whole), what))
    }

    /// The keys that were found, of `whole`. The others are not in the answer.
    pub(super) fn looked_up(
        &self,
        tag: u32,
        whole: usize,
        result: &Result<Answer, Error>,
        job: &JobMap,
    ) -> Step {
        let found = match result {
            Ok(Answer::Found(found)) => found,
            Ok(_) => return self.say_status(tag, status::NOT_FOUND),
            Err(error) => return self.say_status(tag, error.code()),
        };
        let mut out = Vec::new();
        put_status(&mut out, all_of(found.len(), whole));
        put_size(&mut out, found.len());
        for (key, value, owner) in found {
            let (name, rank) = name_of(*owner, job);
            put_proc(&mut out, name, rank);
            put_text(&mut out, key);
            put_value(&mut out, key, value);
        }
        self.say(tag, &out)
    }

    fn unpublish(&mut self, tag: u32, from: &mut Reader<'_>) -> Decoded<Step> {
        user(from)?;
        let mut keys = keys(from)?;
        Attributes::take(from)?.are_met_by(&UNPUBLISH)?;
        if keys.is_empty() {
            keys.extend(std::mem::take(&mut self.published));
        }
        keys.iter().for_each(|key| {
            self.published.remove(key);
        });
        Ok(match keys.is_empty() {
            true => self.say_status(tag, status::SUCCESS),
            false => self.ask(Expected::Status(tag), Request::Unpublish(keys)),
        })
    }

    fn notify(&mut self, tag: u32, from: &mut Reader<'_>, job: &JobMap) -> Decoded<Step> {
        let code = from.status()?;
        // In PMIx success is 0, and codes above are neither errors nor events.
        if code >= status::SUCCESS {
            return Err(BAD);
        }
        from.begin()?;
        let number = from.byte()?;
        let mut with = Attributes::take(from)?;
        with.are_met_by(&NOTIFY)?;
        let non_default = with.is_set(NON_DEFAULT);
        with.remove(NON_DEFAULT);
        let range = match (number, with.remove(IN_RANGE)) {
            (6, Some(procs)) => Range::Custom(group_of(&procs, job, self.node)?),
            (6, None) | (_, Some(_)) => return Err(BAD),
            (number, None) => range_numbered(number)?,
        };
        let notify = Request::Notify { code, range, non_default, info: with.all };
        Ok(self.ask(Expected::Status(tag), notify))
    }

    fn register(&mut self, tag: u32, from: &mut Reader<'_>) -> Decoded<Step> {
        let count = from.size(MAX_KEYS)?;
        let mut codes = Vec::new();
        for _ in 0..count {
            codes.push(i32::try_from(from.signed()?).map_err(|_| BAD)?);
        }
        // The client library itself selects sources and orders its handlers.
        Attributes::take(from)?.are_met_by(&REGISTER)?;
        Ok(match self.events.listen(&codes) {
            None => self.say_status(tag, status::SUCCESS),
            Some((handler, codes)) => {
                self.ask(Expected::Register(tag, handler), Request::Register { handler, codes })
            }
        })
    }

    /// Codes to the end of the message. There is no answer.
    fn deregister(&mut self, from: &mut Reader<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Ok(code) = from.status() {
            if let Some(handler) = self.events.ignore(code) {
                steps.push(self.ask(Expected::Nothing, Request::Deregister(handler)));
            }
        }
        steps
    }

    /// Job control: of what a client may have done to processes of its job, what signals can do
    /// (PMIx Standard 4.1, section 12.2).
    fn control(&mut self, tag: u32, from: &mut Reader<'_>, job: &JobMap) -> Decoded<Step> {
        let count = from.size(MAX_PROCS)?;
        let group = take_group(from, count as u64, job, self.node)?;
        let with = Attributes::take(from)?;
        with.are_met_by(&CONTROL)?;
        let [kill, terminate, pause, resume, own] = CONTROL;
        let named = [
            (kill, Signal::KILL),
            (terminate, Signal::TERM),
            (pause, Signal::STOP),
            (resume, Signal::CONT),
        ];
        let named = named.into_iter().filter(|(key, _)| with.is_set(key));
        let mut signals: Vec<i32> = named.map(|(_, signal)| signal.as_raw()).collect();
        if let Some(number) = with.get(own) {
            signals.push(number.as_u64().and_then(|number| number.try_into().ok()).ok_or(BAD)?);
        }
        // Other directives (checkpoints, clean-up after the process) are not offered.
        let [signal] = signals[..] else {
            return Err(if signals.is_empty() { UNSUPPORTED } else { BAD });
        };
        // A client that names processes of which there are none (peers on a node without any) does
        // not mean the whole job.
        let group = (count > 0).then_some(group);
        Ok(self.ask(Expected::Results(tag), Request::Signal { group, signal }))
    }

    fn query(&mut self, tag: u32, from: &mut Reader<'_>, job: &JobMap) -> Decoded<Vec<Step>> {
        // Each once, however often it is named.
        let (mut wanted, mut seen, mut named) = (Vec::new(), BTreeSet::new(), 0);
        for _ in 0..from.size(MAX_KEYS)? {
            let count = usize::try_from(from.signed()?).map_err(|_| BAD)?;
            for _ in 0..count {
                let key = from.text()?;
                if seen.insert(key.clone()) {
                    wanted.push(key);
                }
                named += 1;
                if named > MAX_KEYS {
                    return Err(BAD);
                }
            }
            let count = usize::try_from(from.unsigned()?).map_err(|_| BAD)?;
            if count > MAX_KEYS {
                return Err(BAD);
            }
            let with = Attributes::take_some(from, count)?;
            with.are_met_by(&QUERY)?;
            // There is only this job.
            let elsewhere = with
                .get("pmix.nspace")
                .is_some_and(|name| name.as_str().is_some_and(|name| name != job.namespace()));
            if elsewhere {
                return Err(Refusal(status::NOT_FOUND));
            }
            if let Some(proc) = with.get("pmix.procid") {
                group_of(proc, job, self.node)?;
            }
        }
        if wanted.is_empty() {
            return Err(BAD);
        }
        let mut batch = Batch::query(wanted.len());
        let mut steps = Vec::new();
        for key in wanted {
            let asked = match key.as_str() {
                NAMESPACES => {
                    batch.found(&key, &job.namespace().into());
                    continue;
                }
                QUERIES => {
                    let all = [NAMESPACES, PROCESSES, LOCAL_PROCESSES, QUERIES, ENGINES].join(",");
                    batch.found(&key, &all.into());
                    continue;
                }
                PROCESSES | LOCAL_PROCESSES => "petasos.processes".to_owned(),
                _ => key.clone(),
            };
            steps.push(self.ask(Expected::Part(tag, key), Request::Query(vec![asked])));
        }
        match steps.is_empty() {
            true => Ok(self.batch_done(tag, batch)),
            false => {
                self.batches.insert(tag, batch);
                Ok(steps)
            }
        }
    }

    /// One of several requests was answered.
    pub(super) fn part_done(
        &mut self,
        tag: u32,
        key: String,
        result: &Result<Answer, Error>,
        job: &JobMap,
    ) -> Vec<Step> {
        let node = self.node;
        let whole = self.batches.part_done(tag, |batch| match result {
            Ok(Answer::Info(info)) => {
                let only = Some(node).filter(|_| key == LOCAL_PROCESSES);
                let first = info.iter().find(|(name, _)| name != "petasos.silent");
                match (key.as_str(), first) {
                    (PROCESSES | LOCAL_PROCESSES, Some((_, Value::List(lines)))) => {
                        batch.found(&key, &process_table(lines, only, job));
                    }
                    (_, Some((_, value))) => batch.found(&key, value),
                    (_, None) => batch.failed(status::NOT_FOUND),
                }
            }
            Ok(_) => batch.published(key),
            Err(error) => batch.failed(error.code()),
        });
        whole.map_or_else(Vec::new, |batch| self.batch_done(tag, batch))
    }

    fn batch_done(&mut self, tag: u32, batch: Batch) -> Vec<Step> {
        match batch.outcome() {
            Outcome::Published(keys) => {
                self.published.extend(keys);
                vec![self.say_status(tag, status::SUCCESS)]
            }
            Outcome::Failed(error, keys) => {
                let mut steps = vec![self.say_status(tag, error)];
                if !keys.is_empty() {
                    steps.push(self.ask(Expected::Nothing, Request::Unpublish(keys)));
                }
                steps
            }
            Outcome::Found(answer) => vec![self.say(tag, &answer)],
        }
    }
}

/// The status of an answer that has `found` of `whole`.
fn all_of(found: usize, whole: usize) -> i32 {
    if found < whole { status::PARTIAL_SUCCESS } else { status::SUCCESS }
}

/// Skips the number of the user, which the kernel has told already.
fn user(from: &mut Reader<'_>) -> Decoded<()> {
    from.begin()?;
    from.unsigned().map(|_| ())
}

/// Keys, each packed by itself.
fn keys(from: &mut Reader<'_>) -> Decoded<Vec<String>> {
    from.begin()?;
    let count = from.unsigned()?;
    if count > MAX_KEYS as u64 {
        return Err(BAD);
    }
    let mut keys = Vec::new();
    for _ in 0..count {
        from.begin()?;
        keys.push(from.text()?);
    }
    Ok(keys)
}

/// The range that a number stands for (PMIx Standard 4.1, section 3.4.20), but for lists.
fn range_numbered(number: u8) -> Decoded<Range> {
    Ok(match number {
        0 | 4 => Range::Session,
        1 => Range::Rm,
        2 => Range::Local,
        3 => Range::Namespace,
        5 => Range::Global,
        7 => Range::ProcLocal,
        _ => return Err(BAD),
    })
}

pub(super) fn range_number(range: &Range) -> u8 {
    match range {
        Range::Rm => 1,
        Range::Local => 2,
        Range::Namespace => 3,
        Range::Session => 4,
        Range::Global => 5,
        Range::Custom(_) => 6,
        Range::ProcLocal => 7,
    }
}

fn range_of(value: Option<Value>) -> Decoded<Range> {
    let Some(value) = value else { return Ok(Range::Session) };
    range_numbered(value.as_u64().and_then(|number| number.try_into().ok()).ok_or(BAD)?)
}

/// The engine's table of processes in the client's form; `only`: those of one node.
fn process_table(lines: &[Value], only: Option<Node>, job: &JobMap) -> Value {
    let command = job.value(Proc::JOB, "petasos.command").map(|value| value.to_string());
    let command = command.unwrap_or_default();
    let command = command.split(' ').next().unwrap_or_default();
    let (mut packed, mut count) = (Vec::new(), 0);
    for line in lines {
        let Value::List(line) = line else { continue };
        let number = |at: usize| {
            let number = line.get(at).and_then(Value::as_u64).unwrap_or_default();
            u32::try_from(number).unwrap_or_default()
        };
        let (rank, node, pid) = (number(1), Node(number(2)), number(3));
        if only.is_some_and(|only| only != node) {
            continue;
        }
        count += 1;
        put_proc(&mut packed, job.namespace(), rank);
        put_text(&mut packed, job.node(node).map_or("", |node| &node.name));
        put_text(&mut packed, command);
        put_unsigned(&mut packed, kind::UINT32.into());
        put_unsigned(&mut packed, pid.into());
        packed.push(process_state(line.get(4).and_then(Value::as_str).unwrap_or_default()));
    }
    let mut array = Vec::new();
    put_unsigned(&mut array, kind::PROC_INFO.into());
    put_unsigned(&mut array, count);
    array.extend(packed);
    Value::Typed { kind: kind::ARRAY, packed: array }
}

/// The state of a process (PMIx Standard 4.1, section 3.4.14) for the engine's name of it.
fn process_state(word: &str) -> u8 {
    match word {
        "not started" => 1,
        "running" => 5,
        "connected" => 6,
        word if word == Termination::Finalized.to_string()
            || word == Termination::Exited(0).to_string() =>
        {
            20
        }
        _ => 50,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ELSEWHERE;
    use super::*;
    use petasos_pmix::server::packing::{LOCAL_PEERS, put_info, put_signed};
    use petasos_pmix::{
        JobId,
        job::{JobSpec, NodeInfo, Run},
    };

    /// Two ranks on the first of two nodes.
    fn job() -> JobMap {
        let node =
            |at| NodeInfo { name: format!("n{at}"), base: "tcp://10.0.0.1:".into(), first: 9000 };
        let (name, nodes) = ("job".to_owned(), vec![node(0), node(1)]);
        let runs = vec![Run { node: Node(0), count: 2 }];
        JobMap::new(JobSpec { id: JobId(0), name, nodes, runs, info: Vec::new() }).unwrap()
    }

    fn asked(node: u32, message: &[u8]) -> Vec<Request> {
        let mut session = Session::new(Node(node), "/nowhere".as_ref(), Default::default());
        let steps = session.command(1, Reader(message), &job()).unwrap();
        let asked = |step| if let Step::Ask(_, what) = step { Some(what) } else { None };
        steps.into_iter().filter_map(asked).collect()
    }

    fn kill(ranks: &[u32]) -> Vec<u8> {
        let mut message = vec![2, 18];
        put_size(&mut message, ranks.len());
        ranks.iter().for_each(|rank| put_proc(&mut message, "job", *rank));
        put_size(&mut message, 1);
        put_info(&mut message, "pmix.jctrl.kill", &true.into());
        message
    }

    /// Whatever the number of a command is, and whether anything follows it, there is one answer to
    /// it: from this session, or from the engine. Deregistering has none
    /// (`pmix_event_registration.c` waits for none).
    #[test]
    fn every_command_is_answered() {
        let (job, mut header) = (job(), vec![0; 16]);
        let say = |session: &mut Session, header: &mut Vec<u8>, payload: &[u8]| {
            header[8..12].copy_from_slice(&(payload.len() as u32).to_be_bytes());
            let message = [&header[..], payload].concat();
            let (len, steps) = session.take(&message, &job).unwrap().unwrap();
            assert_eq!(len, message.len());
            steps
        };
        header[4..8].copy_from_slice(&77u32.to_be_bytes());
        for command in 0..=u8::MAX {
            for more in [&[][..], &[2, 0], &[0; 16], &[0xff; 16]] {
                let mut session = Session::new(Node(0), "/nowhere".as_ref(), Default::default());
                session.rank = Some(1);
                let steps = say(&mut session, &mut header, &[&[2, command], more].concat());
                let mut sent = Vec::new();
                for step in steps {
                    match step {
                        Step::Say(bytes) => sent.push(bytes),
                        Step::Ask(id, _) => {
                            let error = Err(Error::Misuse(String::new()));
                            let answers = session.answered(id, &error, &job);
                            let bytes = answers.into_iter().filter_map(|step| match step {
                                Step::Say(bytes) => Some(bytes),
                                Step::Explain(_) | Step::Fail(_) => None,
                                other => panic!("{command}: {other:?}"),
                            });
                            sent.extend(bytes);
                        }
                        Step::Explain(_) | Step::Fail(_) => {}
                        Step::Find(id, key, _) => {
                            let proc = job.proc(Proc::JOB);
                            let none = Err(Error::NotFound { proc, key });
                            let [Step::Say(bytes)] = &session.answered(id, &none, &job)[..] else {
                                panic!("{command}: nothing is sent")
                            };
                            sent.push(bytes.clone());
                        }
                    }
                }
                let expected = usize::from(command != 14);
                assert_eq!(sent.len(), expected, "{command} with {more:?}");
                for bytes in sent {
                    assert_eq!(&bytes[4..8], 77u32.to_be_bytes(), "{command}: another tag");
                    let served = (0..=8).contains(&command) || (12..=15).contains(&command);
                    if !served && command != 18 {
                        let mut refusal = Vec::new();
                        put_status(&mut refusal, status::NOT_SUPPORTED);
                        assert_eq!(bytes[16..], refusal, "{command}");
                    }
                }
            }
        }
    }

    /// A get of rank 0's `key`, with these attributes.
    fn get(key: &str, with: &[(&str, Value)]) -> Vec<u8> {
        let mut message = vec![2, 4, 2];
        put_text(&mut message, "job");
        put_signed(&mut message, 1);
        put_unsigned(&mut message, 0);
        put_size(&mut message, with.len());
        with.iter().for_each(|(key, value)| put_info(&mut message, key, value));
        put_signed(&mut message, 1);
        put_text(&mut message, key);
        message
    }

    #[test]
    fn a_key_may_come_a_moment_after_the_card() {
        let job = job();
        let proc = job.proc(0);
        let not_found = || Err(Error::NotFound { proc, key: "k".into() });
        let late = || {
            let (node, key, state) = (Node(0), "k".into(), String::new());
            Err(Error::GetTimeout { proc, node, key, state })
        };
        let two = Some(Duration::from_secs(2));
        // The requests of the engine in order, if each is answered as not found, and the answer to
        // the client.
        let asked = |node, message: &[u8]| {
            let mut session = Session::new(Node(node), "/nowhere".as_ref(), Default::default());
            let (mut asked, mut sent) = (Vec::new(), None);
            let mut steps = session.command(1, Reader(message), &job).unwrap();
            while let Some(step) = steps.pop() {
                match step {
                    Step::Ask(id, Request::Get { key, timeout, immediate, wait, .. }) => {
                        let answer = if wait { late() } else { not_found() };
                        asked.push((key, timeout, immediate, wait));
                        steps = session.answered(id, &answer, &job);
                    }
                    Step::Say(bytes) => sent = Reader(&bytes[16..]).status().ok(),
                    other => panic!("{other:?}"),
                }
            }
            (asked, sent.unwrap())
        };
        let once = |timeout, immediate, wait| vec![("k".to_owned(), timeout, immediate, wait)];
        let all = [once(None, false, false), once(two, false, true)].concat();
        assert_eq!(asked(0, &get("k", &[])), (all, status::NOT_FOUND));
        // For other nodes the key may have a value of its own.
        let (keys, code) = asked(1, &get("k", &[]));
        let elsewhere = format!("{ELSEWHERE}k");
        let expected = [("k", false), (&elsewhere, false), ("k", true)];
        let keys: Vec<_> = keys.iter().map(|(key, _, _, wait)| (key.as_str(), *wait)).collect();
        assert_eq!((&keys[..], code), (&expected[..], status::NOT_FOUND));
        for at_once in ["pmix.immediate", "pmix.optional"] {
            let with = [(at_once, true.into())];
            let found = asked(0, &get("k", &with));
            assert_eq!(found, (once(None, true, false), status::NOT_FOUND));
        }
        // If the client named a time, it gets a timeout.
        let found = asked(0, &get("k", &[("pmix.timeout", Value::Uint(2))]));
        assert_eq!(found, (once(two, false, true), status::TIMEOUT));
        // Reserved keys do not come later.
        let (keys, code) = asked(0, &get("pmix.k", &[]));
        assert_eq!((keys.len(), code), (1, status::NOT_FOUND));
    }

    #[test]
    fn an_empty_list_means_all_processes() {
        let group = |node, ranks: &[u32]| match &asked(node, &kill(ranks))[..] {
            [Request::Signal { group, signal: 9 }] => group.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(group(0, &[]), None);
        assert_eq!(group(0, &[LOCAL_PEERS]).unwrap().len(), 2);
        // There are none on that node: the engine refuses it.
        assert!(group(1, &[LOCAL_PEERS]).unwrap().is_empty());
        // As many as in a fence.
        assert_eq!(group(0, &vec![1; MAX_KEYS + 1]).unwrap().len(), 1);
    }

    #[test]
    fn what_is_queried_twice_is_asked_once() {
        let mut message = vec![2, 15];
        put_size(&mut message, 1);
        put_signed(&mut message, MAX_KEYS as i64);
        (0..MAX_KEYS / 2).for_each(|_| {
            put_text(&mut message, PROCESSES);
            put_text(&mut message, "petasos.jobs");
        });
        put_unsigned(&mut message, 0);
        let keys = ["petasos.processes", "petasos.jobs"];
        assert_eq!(asked(0, &message), keys.map(|key| Request::Query(vec![key.to_owned()])));
    }
}
