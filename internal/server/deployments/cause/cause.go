// Package cause says in one sentence why a deployment failed. It states only what the server knows: a message is a line
// of the job's log, in which the runner has masked secrets, and a resource has its name only if the log has it, too.
package cause

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// The kinds of causes.
const (
	Resource = "resource" // an operation on a resource failed
	Program  = "program"  // the program failed
	Command  = "command"  // another step failed
	Source   = "source"   // the source could not be read
	Start    = "start"    // the job could not be started, or was ended from outside
	Agent    = "agent"    // the agent or the runner no longer reports
)

const (
	maxHeadline = 120 // characters
	maxMessage  = 400
	// maxResources bounds the number of failed resources that are compared with a log.
	maxResources = 100
)

// Evidence is what is known about a job's end, besides the job.
type Evidence struct {
	Image      string // of the job; "" if unknown
	Repository string // name of the repository of the program, such as acme/web; "" if unknown
	// Failed are the resources that failed.
	Failed []Failed
	// Program reports that the engine reported an error of the program itself.
	Program bool
	// Log is what the log of the failed step states; the subjects are Failed.
	Log joblog.Ending
}

// Failed is a resource whose operation failed.
type Failed struct{ URN, Type, Name, Op string }

// Read adds what the events of an update tell about its failure.
func (e *Evidence) Read(tree changes.Tree) {
	var operations, checks []Failed
	for _, r := range tree.Rows {
		one := Failed{URN: r.URN, Type: r.Type, Name: r.Name, Op: r.Op}
		switch {
		case r.Type == stackType:
		case r.State == changes.Failed:
			operations = append(operations, one)
		case r.Errors > 0:
			one.Op = ""
			checks = append(checks, one)
		}
	}
	e.Failed = append(operations, checks...)
	e.Failed = e.Failed[:min(len(e.Failed), maxResources)]
	e.Program = slices.ContainsFunc(tree.Messages, ofProgram)
}

// ofProgram reports whether a message is an error of the program. The engine sends what a program prints as a message
// without a resource, or about the stack, and then its own message that the update failed.
func ofProgram(m changes.Message) bool {
	kind, _ := changes.Parts(m.URN)
	return (m.URN == "" || kind == stackType) && (m.Severity == "error" || m.Severity == "info#err") && !engineEnds.MatchString(m.Text)
}

var engineEnds = regexp.MustCompile(`^error: \w+ failed$`)

// stackType is the type of the resource to which the engine ascribes errors of the program.
const stackType = "pulumi:pulumi:Stack"

// Subjects returns the failed resources as subjects of a search in the log.
func (e *Evidence) Subjects() []joblog.Subject {
	var out []joblog.Subject
	for _, f := range e.Failed {
		out = append(out, joblog.Subject{Type: f.Type, Name: f.Name})
	}
	return out
}

// Step returns the index of the step that failed first, or -1.
func Step(job store.Job) int {
	for i, step := range job.Steps {
		if step.Status == workflow.StepFailed {
			return i
		}
	}
	return -1
}

// Of returns the cause of a job's failure, or nil if the job has not failed, was cancelled or found the drift that it
// looked for.
func Of(job store.Job, e Evidence) *store.Cause {
	if job.Status != workflow.StatusFailed || job.Reason == workflow.ReasonCancelled || job.DriftFound {
		return nil
	}
	c := store.Cause{Step: Step(job)}
	switch job.Reason {
	case workflow.ReasonExitCode, workflow.ReasonNone:
		ofStep(&c, job, e)
		if m := refusedRead.FindStringSubmatch(c.Message); m != nil {
			c.Headline = "No grant lets this deployment read the outputs of " + m[1]
		}
		if m := refusedOpen.FindStringSubmatch(c.Message); m != nil {
			c.Headline = "This deployment may not open environment " + m[1]
		}
	case workflow.ReasonLost:
		c.Kind, c.Headline = Agent, lost(job)
	default:
		c.Kind, c.Headline = ended(job, e)
	}
	c.Headline = clip(c.Headline, maxHeadline)
	return &c
}

// ofStep describes the failure of a step.
func ofStep(c *store.Cause, job store.Job, e Evidence) {
	if c.Step < 0 {
		c.Kind, c.Headline = Start, cmp.Or(line(job.Message), "The job failed")
		return
	}
	name := job.Steps[c.Step].Name
	pulumi := name == workflow.PulumiStepName(job.Operation)
	if at := e.Log.Subject; pulumi && at >= 0 && at < len(e.Failed) && e.Log.About.Stream == c.Step {
		f := e.Failed[at]
		c.Kind, c.URN = Resource, f.URN
		c.Headline = named(f.Name, verb(f.Op))
		c.Message, c.Line = message(e.Log.About), e.Log.About.Line+1
		return
	}
	var what string
	specific := e.Log.HasFirst && e.Log.First.Stream == c.Step && !e.Log.First.General
	if v := e.Log.Violation; pulumi && v.Policy != "" && !specific && !e.Program {
		c.Kind, c.Line = Command, v.Line+1
		c.Headline = named(v.Resource, clip(" violates the policy "+line(v.Policy), maxHeadline/2))
		if c.Message = clip(line(v.Message), maxMessage); c.Message != "" {
			c.Headline += ": " + c.Message
		}
		return
	}
	switch {
	case pulumi && e.Program:
		c.Kind, what = Program, "The program failed"
	case name == workflow.SourceStepName:
		c.Kind, what = Source, named(cmp.Or(e.Repository, "The source"), " cannot be read")
	default:
		c.Kind, what = Command, named(cmp.Or(sentences[name], name+" failed"), "")
	}
	c.Headline = what
	if e.Log.HasFirst && e.Log.First.Stream == c.Step {
		c.Line = e.Log.First.Line + 1
		if !e.Log.First.General {
			c.Message = message(e.Log.First)
			c.Headline = what + ": " + brief(c.Kind, c.Message)
			return
		}
	}
	if code := job.Steps[c.Step].ExitCode; code != nil && *code != 0 {
		c.Headline = fmt.Sprintf("%s: exit code %d", what, *code)
	}
}

// brief returns a message as the end of a headline. The runner's messages about a source begin with its address, which
// the headline names already.
func brief(kind, message string) string {
	if m := cloning.FindStringSubmatch(message); kind == Source && m != nil {
		return m[1]
	}
	return message
}

var cloning = regexp.MustCompile(`^cloning \S+: (.+)$`)

// refusedRead matches the server's answer to a job that may not read the outputs of a stack, as the CLI prints it; see
// package grants.
var refusedRead = regexp.MustCompile(`^\[403\] Forbidden: this deployment may not read the outputs of (\S+): `)

// refusedOpen matches the server's answer to a job that may not open an environment, as the CLI or the runner prints it.
var refusedOpen = regexp.MustCompile(`(?:^|: )this deployment may not open environment (\S+): `)

// sentences are the failures of steps whose names do not say what failed.
var sentences = map[string]string{
	"Setup":                       "The job could not be prepared",
	"Download dependencies":       "The dependencies could not be downloaded",
	"Remove stack":                "The stack could not be removed",
	workflow.EnvironmentsStepName: "The environments could not be opened",
	"Fetch cloud provider credentials via OIDC": "The cloud credentials could not be fetched",
}

// verb returns the predicate of a failed operation.
func verb(op string) string {
	switch op {
	case "create":
		return " could not be created"
	case "update":
		return " could not be updated"
	case "delete":
		return " could not be deleted"
	case "replace":
		return " could not be replaced"
	case "read":
		return " could not be read"
	case "refresh":
		return " could not be refreshed"
	case "import":
		return " could not be imported"
	default:
		return " has an error"
	}
}

// named returns a sentence with a name that is cut as long as needed.
func named(name, predicate string) string {
	return clip(line(name), maxHeadline-utf8.RuneCountInString(predicate)) + predicate
}

func lost(job store.Job) string {
	who := cmp.Or(line(job.AgentHostname), "The agent")
	text := clip(who, maxHeadline/2) + " was lost"
	if !job.LastSeenAt.IsZero() {
		text += " at " + job.LastSeenAt.UTC().Format("15:04 UTC")
	}
	if !job.Operation.Changes() {
		return text
	}
	return text + "; the " + strings.ReplaceAll(string(job.Operation), "-", " ") + " may still run"
}

// ended describes a job that did not end by itself.
func ended(job store.Job, e Evidence) (kind, headline string) {
	text := strings.TrimSuffix(line(job.Message), ".")
	with := func(sentence string) string {
		if text == "" {
			return sentence
		}
		return sentence + ": " + text
	}
	switch job.Reason {
	case workflow.ReasonImage:
		switch image := line(e.Image); {
		case strings.HasPrefix(text, "The image "): // of the executors
			return Start, strings.Replace(text, " could not be pulled", " cannot be pulled", 1)
		case image == "":
			return Start, cmp.Or(text, "The image cannot be used")
		default:
			return Start, with("The image " + image + " cannot be used")
		}
	case workflow.ReasonOOM:
		return Start, "Killed: the memory is used up"
	case workflow.ReasonTimeout:
		return Start, with("The deployment took too long")
	case workflow.ReasonSignal:
		return Start, cmp.Or(text, "A signal ended the deployment")
	case workflow.ReasonLaunch:
		return Start, with("The job could not be started")
	case workflow.ReasonRefused:
		return Start, with("The agent refused the deployment")
	case workflow.ReasonEvicted:
		return Start, with("The host stopped or removed the job")
	case workflow.ReasonInvalidJob:
		return Start, with("The definition of the job is invalid")
	case workflow.ReasonInternalError:
		return Start, "A defect in this product ended the job: see the log"
	case workflow.ReasonAgentStopped:
		return Agent, named(cmp.Or(line(job.AgentHostname), "The agent"), " was stopped together with its jobs")
	case workflow.ReasonAbandoned:
		return Agent, "The agents stopped reporting before they started the job"
	default:
		return Start, with(line(string(job.Reason)))
	}
}

// message returns the text of a log line without the word that marks it as an error.
func message(l joblog.ErrorLine) string {
	text := line(l.Text)
	for _, prefix := range []string{"error: ", "Error: ", "ERROR: ", "fatal: ", "* "} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			text = rest
			break
		}
	}
	return clip(text, maxMessage)
}

// line returns untrusted text as one printable line.
func line(text string) string { return termtext.OneLine(text, 4*maxMessage) }

// clip cuts a line to a number of characters.
func clip(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	cut := []rune(text)[:max(0, limit-1)]
	return strings.TrimSpace(string(cut)) + "…"
}
