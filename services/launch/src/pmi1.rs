//! PMI-1, as MPICH speaks it: lines of `name=value` words over a descriptor that the process
//! inherits. A front end on the engine, as a state machine: lines in, requests of the engine and
//! lines out.
//!
//! A key of PMI-1 belongs to the job, not to a process. A process puts it on its business card, a
//! barrier is a fence with business cards, and a get looks through all business cards that are
//! here.

use petasos_pmix::{
    Entry, Error, JobId, Proc, Scope, Value,
    event::Range,
    job::JobMap,
    message::{Answer, Persistence, Published, Request},
};

/// The longest line.
pub(crate) const MAX_LINE: usize = 64 << 10;
/// The longest value, as it is told to the client.
const MAX_VALUE: usize = 1024;
/// Prefix of the keys on a business card, so that they collide with no others.
const PREFIX: &str = "pmi1.";

/// What a line, or an answer, leads to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// A line to the client.
    Say(String),
    /// A request of the engine; its answer goes to [`Session::answered`].
    Ask(Request),
    /// The value of a key is wanted: it goes to [`Session::found`].
    Find(String),
}

/// What the client waits for. The engine answers in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Init,
    Commit,
    Barrier,
    Finalize,
    Name(&'static str),
    Lookup,
    Abort,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Session {
    proc: Proc,
    put: Vec<(String, Entry)>,
    expected: Vec<Expected>,
    /// A command of several lines, of which the last has not come.
    lines: Option<Lines>,
}

/// A command of several lines, such as `spawn`: the last one is `endcmd`.
#[derive(Debug)]
struct Lines {
    command: String,
    /// How many of them are answered once, after the last.
    of: u32,
    nth: u32,
}

/// How the answers to commands that are not served are named (`pmi-1.1.txt` of MPICH, and its older
/// clients). Answers to others end in `_result`.
const NOT_SERVED: [(&str, &str); 5] = [
    ("initack", "initack"),
    ("singinit", "singinit_info versionok=no"),
    ("getbyidx", "getbyidx_results"),
    ("create_kvs", "newkvs"),
    ("destroy_kvs", "kvs_destroyed"),
];

/// A command that is not served is refused at once: its client waits for an answer.
fn refused(command: &str) -> Vec<Step> {
    let known = NOT_SERVED.iter().find(|(name, _)| *name == command);
    let answer = known.map_or_else(|| format!("{command}_result"), |(_, answer)| (*answer).into());
    vec![Step::Say(format!("cmd={answer} rc=-1 msg=not_supported"))]
}

/// The value of a field of a line.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The value of the last field, which may have spaces in it.
fn rest<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let at = line.find(&format!(" {name}="))?;
    Some(&line[at + name.len() + 2..])
}

/// The nodes of the ranks in MPICH's form: blocks of (first node, how many, ranks on each).
fn mapping(job: &JobMap) -> String {
    let hosts = job.hosts();
    let mut blocks: Vec<(usize, usize, u32)> = Vec::new();
    for run in job.spec().runs.iter().filter(|run| run.count > 0) {
        let node = hosts.binary_search(&run.node).unwrap_or_default();
        match blocks.last_mut() {
            Some((first, count, each)) if *first + *count == node && *each == run.count => {
                *count += 1;
            }
            _ => blocks.push((node, 1, run.count)),
        }
    }
    let blocks: Vec<String> =
        blocks.iter().map(|(first, count, each)| format!("({first},{count},{each})")).collect();
    format!("(vector,{})", blocks.join(","))
}

impl Session {
    pub(crate) fn new(rank: u32) -> Session {
        let proc = Proc::new(JobId(0), rank);
        Session { proc, put: Vec::new(), expected: Vec::new(), lines: None }
    }

    pub(crate) fn rank(&self) -> u32 {
        self.proc.rank
    }

    fn ask(&mut self, expected: Expected, what: Request) -> Step {
        self.expected.push(expected);
        Step::Ask(what)
    }

    /// A line of the client.
    pub(crate) fn line(&mut self, line: &str, job: &JobMap) -> Vec<Step> {
        let say = |text: String| vec![Step::Say(text)];
        if let Some(lines) = &mut self.lines {
            let number = |name: &str| line.strip_prefix(name)?.trim_end().parse().ok();
            lines.of = number("totspawns=").unwrap_or(lines.of);
            lines.nth = number("spawnssofar=").unwrap_or(lines.nth);
            return match line.trim_end() {
                "endcmd" => match self.lines.take() {
                    Some(lines) if lines.nth >= lines.of => refused(&lines.command),
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            };
        }
        // None of them is served.
        if let Some(command) = line.strip_prefix("mcmd=") {
            self.lines = Some(Lines { command: command.trim_end().to_owned(), of: 1, nth: 1 });
            return Vec::new();
        }
        match field(line, "cmd").unwrap_or_default() {
            "init" if field(line, "pmi_version").is_some_and(|version| version != "1") => {
                say("cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1".to_owned())
            }
            "init" => vec![self.ask(Expected::Init, Request::Connect(self.proc))],
            "get_maxes" => {
                say(format!("cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max={MAX_VALUE}"))
            }
            "get_appnum" => say("cmd=appnum rc=0 appnum=0".to_owned()),
            "get_my_kvsname" => {
                say(format!("cmd=my_kvsname rc=0 kvsname=petasos_{}", job.spec().name))
            }
            "get_universe_size" => say(format!("cmd=universe_size rc=0 size={}", job.size())),
            "put" => {
                let (Some(key), Some(value)) = (field(line, "key"), rest(line, "value")) else {
                    return say("cmd=put_result rc=-1 msg=no_key_or_value".to_owned());
                };
                let entry = Entry { scope: Scope::Global, value: value.into() };
                self.put.push((format!("{PREFIX}{key}"), entry));
                say("cmd=put_result rc=0 msg=success".to_owned())
            }
            "get" => {
                let key = field(line, "key").unwrap_or_default();
                let mapping = mapping(job);
                match key {
                    "PMI_process_mapping" if mapping.len() <= MAX_VALUE => {
                        say(format!("cmd=get_result rc=0 msg=success value={mapping}"))
                    }
                    key => {
                        let own = format!("{PREFIX}{key}");
                        match self.put.iter().rev().find(|(put, _)| *put == own) {
                            Some((_, entry)) => self.found(Some(&entry.value)),
                            None => vec![Step::Find(own)],
                        }
                    }
                }
            }
            // Of version 1.2, which is not offered.
            "barrier_in" if field(line, "group").is_some_and(|group| group != "WORLD") => {
                say("cmd=barrier_out rc=-1 msg=not_supported".to_owned())
            }
            "barrier_in" => {
                let commit = Request::Commit(std::mem::take(&mut self.put));
                let fence = Request::Fence { group: None, collect: true, timeout: None };
                vec![self.ask(Expected::Commit, commit), self.ask(Expected::Barrier, fence)]
            }
            "finalize" => vec![self.ask(Expected::Finalize, Request::Finalize)],
            "abort" => {
                let status =
                    field(line, "exitcode").and_then(|code| code.parse().ok()).unwrap_or(1);
                let message = rest(line, "error_msg").or_else(|| rest(line, "message"));
                let message = message.unwrap_or("it called abort").to_owned();
                vec![self.ask(Expected::Abort, Request::Abort { status, message })]
            }
            "publish_name" => {
                let (Some(key), Some(port)) = (field(line, "service"), field(line, "port")) else {
                    return say("cmd=publish_result rc=-1 msg=no_service_or_port".to_owned());
                };
                let what = Published {
                    key: format!("{PREFIX}{key}"),
                    value: port.into(),
                    range: Range::Session,
                    persistence: Persistence::Process,
                };
                vec![self.ask(Expected::Name("publish"), Request::Publish(what))]
            }
            "unpublish_name" => {
                let key = format!("{PREFIX}{}", field(line, "service").unwrap_or_default());
                vec![self.ask(Expected::Name("unpublish"), Request::Unpublish(vec![key]))]
            }
            "lookup_name" => {
                let key = format!("{PREFIX}{}", field(line, "service").unwrap_or_default());
                vec![self.ask(
                    Expected::Lookup,
                    Request::Lookup {
                        keys: vec![key],
                        wait: None,
                        least: 0,
                        within: Range::Global,
                    },
                )]
            }
            "" if line.trim().is_empty() => Vec::new(),
            "" => refused("unknown"),
            command => refused(command),
        }
    }

    /// The engine answers the oldest request.
    pub(crate) fn answered(&mut self, result: &Result<Answer, Error>) -> Vec<Step> {
        if self.expected.is_empty() {
            return Vec::new();
        }
        let expected = self.expected.remove(0);
        let rc = if result.is_ok() { "rc=0" } else { "rc=-1" };
        let say = |text: String| vec![Step::Say(text)];
        match (expected, result) {
            (Expected::Init, _) => {
                say(format!("cmd=response_to_init {rc} pmi_version=1 pmi_subversion=1"))
            }
            (Expected::Barrier, _) => say(format!("cmd=barrier_out {rc}")),
            (Expected::Finalize, _) => say(format!("cmd=finalize_ack {rc}")),
            (Expected::Name(verb), Ok(_)) => {
                say(format!("cmd={verb}_result rc=0 info=ok msg=success"))
            }
            (Expected::Name(verb), Err(_)) => say(format!("cmd={verb}_result rc=-1 msg=refused")),
            (Expected::Lookup, Ok(Answer::Found(found))) => {
                let port =
                    found.first().map_or_else(String::new, |(_, value, _)| value.to_string());
                say(format!("cmd=lookup_result rc=0 info=ok port={port}"))
            }
            (Expected::Lookup, _) => say("cmd=lookup_result rc=-1 msg=not_found".to_owned()),
            (Expected::Commit | Expected::Abort, _) => Vec::new(),
        }
    }

    /// The value of a key, if any business card that is here has it.
    pub(crate) fn found(&self, value: Option<&Value>) -> Vec<Step> {
        vec![Step::Say(match value.and_then(Value::as_str) {
            Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
            None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
        })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_pmix::{
        Node,
        job::{JobSpec, NodeInfo, Run},
    };

    fn job(runs: &[(u32, u32)]) -> JobMap {
        let node = NodeInfo { name: "n".into(), base: String::new(), first: 0 };
        let run = |(node, count): &(u32, u32)| Run { node: Node(*node), count: *count };
        let (id, name, nodes) = (JobId(0), "j".into(), vec![node; 4]);
        let runs = runs.iter().map(run).collect();
        JobMap::new(JobSpec { id, name, nodes, runs, info: Vec::new() }).unwrap()
    }

    #[test]
    fn the_mapping_of_ranks_is_in_blocks() {
        assert_eq!(mapping(&job(&[(0, 4)])), "(vector,(0,1,4))");
        assert_eq!(mapping(&job(&[(1, 2), (2, 2), (3, 1)])), "(vector,(0,2,2),(2,1,1))");
        assert_eq!(mapping(&job(&[(0, 1), (1, 1), (0, 1)])), "(vector,(0,2,1),(0,1,1))");
    }

    #[test]
    fn a_conversation() {
        let (job, mut session) = (job(&[(0, 2)]), Session::new(1));
        let say = |text: &str| vec![Step::Say(text.to_owned())];
        let proc = Proc::new(JobId(0), 1);
        let init = session.line("cmd=init pmi_version=1 pmi_subversion=1", &job);
        assert_eq!(init, [Step::Ask(Request::Connect(proc))]);
        let welcome = Ok(Answer::Welcome { proc, node: Node(0), restarts: 0 });
        let expected = say("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1");
        assert_eq!(session.answered(&welcome), expected);
        let put = session.line("cmd=put kvsname=x key=a value=b c=d e", &job);
        assert_eq!(put, say("cmd=put_result rc=0 msg=success"));
        // It sees its own values at once.
        let got = session.line("cmd=get kvsname=x key=a", &job);
        assert_eq!(got, say("cmd=get_result rc=0 msg=success value=b c=d e"));
        let barrier = session.line("cmd=barrier_in", &job);
        assert!(matches!(&barrier[0], Step::Ask(Request::Commit(put)) if put.len() == 1));
        assert!(matches!(barrier[1], Step::Ask(Request::Fence { collect: true, .. })));
        assert_eq!(session.answered(&Ok(Answer::Done)), []);
        assert_eq!(session.answered(&Ok(Answer::Done)), say("cmd=barrier_out rc=0"));
        assert_eq!(session.line("cmd=get key=z", &job), [Step::Find("pmi1.z".to_owned())]);
        assert!(matches!(&session.found(None)[0], Step::Say(text) if text.contains("rc=-1")));
        // Nonsense is refused.
        for line in ["cmd", "cmd=", "=", "cmd=put", "cmd=nothing of that"] {
            let said = session.line(line, &job);
            assert!(matches!(&said[..], [Step::Say(text)] if text.contains("rc=-1")), "{said:?}");
        }
    }

    /// All that clients send, of this version, of the next, and of older ones, with what each waits
    /// for.
    #[test]
    fn every_command_is_answered() {
        let job = job(&[(0, 2)]);
        for (command, answer) in [
            ("init pmi_version=1 pmi_subversion=1", "response_to_init rc=0"),
            ("init pmi_version=2 pmi_subversion=0", "response_to_init rc=-1"),
            ("initack pmiid=1", "initack rc=-1"),
            ("get_maxes", "maxes rc=0"),
            ("get_universe_size", "universe_size rc=0"),
            ("get_appnum", "appnum rc=0"),
            ("get_my_kvsname", "my_kvsname rc=0"),
            ("put kvsname=x key=a value=b", "put_result rc=0"),
            ("put kvsname=x", "put_result rc=-1"),
            ("get kvsname=x key=PMI_process_mapping", "get_result rc=0"),
            ("barrier_in group=0,1:7", "barrier_out rc=-1"),
            ("publish_name service=s port=p", "publish_result rc=0"),
            ("publish_name", "publish_result rc=-1"),
            ("unpublish_name service=s", "unpublish_result rc=0"),
            ("lookup_name service=s", "lookup_result rc=-1"),
            ("singinit pmi_version=1 pmi_subversion=1", "singinit_info versionok=no rc=-1"),
            ("getbyidx kvsname=x idx=0", "getbyidx_results rc=-1"),
            ("create_kvs", "newkvs rc=-1"),
            ("destroy_kvs kvsname=x", "kvs_destroyed rc=-1"),
            ("spawn totspawns=1", "spawn_result rc=-1"),
            ("mput", "mput_result rc=-1"),
            ("keyval_cache", "keyval_cache_result rc=-1"),
            ("get_ranks2hosts", "get_ranks2hosts_result rc=-1"),
            ("finalize", "finalize_ack rc=0"),
        ] {
            let mut session = Session::new(1);
            let mut steps = session.line(&format!("cmd={command}"), &job);
            if matches!(steps[..], [Step::Ask(_)]) {
                steps = session.answered(&Ok(Answer::Done));
            }
            let [Step::Say(said)] = &steps[..] else { panic!("{command}: {steps:?}") };
            assert!(said.starts_with(&format!("cmd={answer}")), "{command}: {said}");
        }
    }

    /// The lines of a spawn are answered once, at their end. The commands that follow are served as
    /// always.
    #[test]
    fn what_has_many_lines_is_refused_at_its_end() {
        let (job, mut session) = (job(&[(0, 2)]), Session::new(1));
        let end = [Step::Say("cmd=spawn_result rc=-1 msg=not_supported".to_owned())];
        for total in [1, 2] {
            for nth in 1..=total {
                let numbers = [format!("totspawns={total}"), format!("spawnssofar={nth}")];
                let lines = ["mcmd=spawn", "nprocs=1", "execname=/bin/cmd", "arg1=mcmd=x"];
                let more = ["cmd=get_maxes", "argcnt=1"];
                let lines = lines.into_iter().chain(numbers.iter().map(|n| &**n)).chain(more);
                lines.for_each(|line| assert_eq!(session.line(line, &job), [], "{line}"));
                let said = session.line("endcmd", &job);
                assert_eq!(said, if nth == total { &end[..] } else { &[] });
            }
        }
        // Without these numbers it is one.
        assert_eq!(session.line("mcmd=spawn", &job), []);
        assert_eq!(session.line("endcmd", &job), end);
        assert_eq!(session.line("cmd=get_appnum", &job).len(), 1);
    }
}
