package joblog

import (
	"bytes"
	"regexp"

	"workflowagent/internal/termtext"
)

// errorForms are the beginnings of lines with which tools state errors.
var errorForms = regexp.MustCompile(`^(?:` +
	`(?i:(?:fatal )?(?:error|fatal|panic)(?:\[\w+\])?):` + // pulumi and its providers, pip, git, Go's runtime, Rust
	`|npm (?:ERR!|error) ` +
	`|\S[^:]*(?:\(\d+,\d+\): |:\d+:\d+ - |: )error [A-Z]+\d+:` + // tsc, .NET
	`|\S+\.go:\d+:\d+: ` + // go build, go vet
	`|go: .*(?:not found|unknown revision|errors parsing|cannot find|updates to go\.\w+ needed)` +
	`|\[ERROR\] ` + // Maven
	`|(?:[A-Za-z_][\w$]*\.)*[A-Z]\w*(?:Error|Exception)(?: \[\w+\])?(?::|$)` + // Node.js, Python, .NET, Java
	`|Unhandled exception\. |Uncaught |Exception in thread "` +
	`|Traceback \(most recent call last\):` +
	`|(?:\S+: )?this deployment may not open environment ` + // the server, in a diagnostic of an environment
	`)`)

// generalForms are errors that say less than those before or after them: those with which pulumi, npm and the runner
// end, and those that only introduce others.
var generalForms = regexp.MustCompile(`^(?:` +
	`error: (?:update|preview|refresh|destroy) failed` +
	`|(?i:error: )opening environment: too many errors$` +
	`|(?i:error: ).*(?:exited with (?:non-zero exit )?code:? \d+|an unhandled (?:error|exception)(?: occurred)?:?|\d+ errors? occurred:)$` +
	`|npm (?:ERR!|error)(?: code| errno| syscall| path| command| A complete log|$)` +
	`|\[ERROR\] (?:$|->|For more information|To see the full)` +
	`|Traceback ` +
	`|TSError: .*Unable to compile TypeScript:?$` +
	`)`)

var warningForms = regexp.MustCompile(`^(?i:warning:|npm warn |\[WARNING\] )`)

// telling are parts of which each line with an error or a warning has one. Few other lines have, so that the forms
// are compared with few lines.
var telling = [][]byte{
	[]byte("rror"), []byte("RROR"), []byte("ERR!"), []byte("atal:"), []byte("FATAL"), []byte("anic"), []byte("PANIC"), []byte("xception"),
	[]byte("Uncaught"), []byte("raceback"), []byte(".go:"), []byte("go: "), []byte("may not open"), []byte("arn"), []byte("ARN"),
}

// severity returns the severity that a line states, and whether an error is a general one.
func severity(text []byte) (s Severity, general bool) {
	told := false
	for _, part := range telling {
		told = told || bytes.Contains(text, part)
	}
	if !told {
		return Normal, false
	}
	text = statement(text)
	switch {
	case errorForms.Match(text):
		return Error, generalForms.Match(text)
	case warningForms.Match(text):
		return Warning, false
	}
	return Normal, false
}

// statement returns the text of a line without colours and indentation.
func statement(text []byte) []byte {
	if text = text[:min(len(text), maxRowText)]; bytes.IndexByte(text, 0x1b) >= 0 {
		text = termtext.Plain(nil, text)
	}
	return bytes.TrimSpace(text)
}
