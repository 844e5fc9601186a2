// Package wire contains the messages between the server and the program workflow-esc, the evaluator of
// environments: their types, limits and framing.
//
// Each message is one line of JSON. The evaluator reads from its standard input and writes to its standard
// output. It serves one request and exits:
//
//	evaluator  [Hello]   when it is ready: the server may start it ahead of a request
//	server     [Request]
//	evaluator  [Message] with an [Ask], any number of times; the server answers each with an [Answer]
//	evaluator  [Message] with the [Result], after which it exits with code 0
//
// A program that ends without a result failed or was killed. Go's runtime exits with code 2 if it gets no memory,
// or for endless recursion; the kernel sends SIGKILL when the time of processors is used up, and SIGSYS at a
// forbidden system call. Its output on standard error may contain parts of a definition, so it must not be logged.
//
// An evaluator may have been taken over by the definition that it read. So the server trusts none of its
// messages: it checks the principal's rights at each ask, counts the asks, bounds the lines, and checks the
// shape of results. The evaluator never has a key, only the plaintexts that its request needs.
package wire

import (
	"encoding/json"
	"slices"
)

// Protocol is the version of the messages. The server refuses an evaluator of another version, which means
// that only one of the two programs was updated.
const Protocol = 1

// Program is the name of the evaluator's program, which the server expects in its own directory.
const Program = "workflow-esc"

// The limits of one request.
const (
	// MaxDefinition bounds a definition, in bytes. The server checks it before it stores a definition.
	MaxDefinition = 1 << 20
	// MaxMessage bounds a line to the evaluator, and a line with an ask, in bytes.
	MaxMessage = 4 << 20
	// MaxResult bounds the line with the result, in bytes.
	MaxResult = 16 << 20
	// MaxImports bounds the environments that an environment imports, directly and indirectly.
	MaxImports = 100
	// MaxDepth bounds the length of a chain of imports.
	MaxDepth = 20
	// MaxAsks bounds the asks of one request.
	MaxAsks = 20_000
	// MaxValues bounds the values of a result.
	MaxValues = 100_000
	// MaxDiagnostics bounds the diagnostics of a result. The evaluator leaves out further ones.
	MaxDiagnostics = 100
	// MaxText bounds a text of a diagnostic, in bytes. The evaluator's are shorter.
	MaxText = 8 << 10
	// MaxName bounds the name of an environment with its version, or of a provider, in bytes.
	MaxName = 256

	// Memory is how much memory the evaluator may use, in bytes.
	Memory = 256 << 20
	// CPUSeconds is how long the evaluator may use a processor. Waiting for answers does not count.
	CPUSeconds = 10
)

// Hello is the evaluator's first message.
type Hello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	// Sandbox is false if the system has no sandbox for the program. On Linux for amd64 and arm64 it is always
	// true, because the program does not start without one.
	Sandbox bool `json:"sandbox"`
}

// Op is what a request asks for.
type Op string

const (
	// Check evaluates the definition without opening providers: their outputs are unknown.
	Check Op = "check"
	// Open evaluates the definition.
	Open Op = "open"
	// Encrypt checks the definition, in which new secrets are plaintext, and returns it with ciphertexts
	// unless the diagnostics contain an error.
	Encrypt Op = "encrypt"
	// Decrypt returns the definition with plaintext secrets.
	Decrypt Op = "decrypt"
)

// Request is the server's first message.
type Request struct {
	Op Op `json:"op"`
	// Name is the environment's, "project/name". It is empty for a definition that is not stored, such as
	// the list of environments of a stack.
	Name       string `json:"name,omitempty"`
	Definition []byte `json:"definition"`
	// Context contains the values of ${context…}. The evaluator adds "rootEnvironment" and
	// "currentEnvironment".
	Context Values `json:"context,omitempty"`
	// ShowSecrets makes a check decrypt secrets, also that of [Encrypt]: one that cannot be decrypted is an error
	// then. Without it, they are unknown.
	ShowSecrets bool `json:"showSecrets,omitempty"`
	// Details adds to the environment what explains its values: expressions, schema, context, and where each
	// value was defined. The result is several times as large.
	Details bool `json:"details,omitempty"`
	// Unchecked makes [Encrypt] only replace secrets, in a definition that was checked before.
	Unchecked bool `json:"unchecked,omitempty"`
	// Milliseconds bounds how long the request may take, with all answers. After it, the evaluator's result
	// is an error. The server kills the evaluator somewhat later.
	Milliseconds int64 `json:"milliseconds"`
}

// Message is a message of the evaluator after its first one. Exactly one member is set.
type Message struct {
	Ask    *Ask    `json:"ask,omitempty"`
	Result *Result `json:"result,omitempty"`
}

// Ask asks the server for something. Exactly one member is set.
type Ask struct {
	Environment *EnvironmentAsk `json:"environment,omitempty"`
	Encrypt     *EncryptAsk     `json:"encrypt,omitempty"`
	Decrypt     *DecryptAsk     `json:"decrypt,omitempty"`
	Provider    *ProviderAsk    `json:"provider,omitempty"`
	Open        *OpenAsk        `json:"open,omitempty"`
}

// EnvironmentAsk asks for the definition of an imported environment. The evaluator asks once for each pair of
// importer and imported environment, so that the server can decide about each.
type EnvironmentAsk struct {
	// Name is as the importer wrote it, for example "project/name@prod".
	Name string `json:"name"`
	// Importer is the importer's resolved name, or the request's name if Root is true.
	Importer string `json:"importer"`
	// Root is true if the importer is the definition of the request.
	Root bool `json:"root,omitempty"`
}

// EncryptAsk asks for the ciphertext of a secret in the definition of the request.
type EncryptAsk struct {
	Plaintext []byte `json:"plaintext"`
}

// DecryptAsk asks for the plaintext of a secret.
type DecryptAsk struct {
	// Environment is the resolved name of an imported environment, or the request's name if Root is true.
	Environment string `json:"environment"`
	Root        bool   `json:"root,omitempty"`
	Ciphertext  []byte `json:"ciphertext"`
}

// ProviderAsk asks for the schemas of a provider of fn::open.
type ProviderAsk struct {
	Name string `json:"name"`
}

// OpenAsk asks for the outputs of a provider.
type OpenAsk struct {
	Provider string `json:"provider"`
	Inputs   Values `json:"inputs"`
	// Current is the name of the environment whose definition contains fn::open, and Root that of the
	// environment that is opened.
	Current string `json:"current"`
	Root    string `json:"root"`
}

// Answer is the server's answer to an ask. If Error is set, it is for people, and becomes a diagnostic at the
// place in the definition that caused the ask; the request continues. Otherwise the member for the ask is set.
type Answer struct {
	Error string `json:"error,omitempty"`
	// Environment answers an [EnvironmentAsk].
	Environment *EnvironmentAnswer `json:"environment,omitempty"`
	// Bytes answers an [EncryptAsk] and a [DecryptAsk].
	Bytes []byte `json:"bytes,omitempty"`
	// Provider answers a [ProviderAsk].
	Provider *ProviderAnswer `json:"provider,omitempty"`
	// Value answers an [OpenAsk].
	Value *Value `json:"value,omitempty"`
}

// EnvironmentAnswer is an imported environment.
type EnvironmentAnswer struct {
	// Name is the environment's resolved name: the same for each way to write it, and another one for another
	// revision. Asks and positions refer to the environment by it.
	Name       string `json:"name"`
	Definition []byte `json:"definition"`
}

// ProviderAnswer describes a provider by JSON schemas.
type ProviderAnswer struct {
	Inputs  json.RawMessage `json:"inputs"`
	Outputs json.RawMessage `json:"outputs"`
}

// Result ends a request.
type Result struct {
	// Error is set if the request could not be served at all. It is for people.
	Error string `json:"error,omitempty"`
	// Fault is true if the error is a mistake in the evaluator, and not due to the request.
	Fault bool `json:"fault,omitempty"`
	// Diagnostics are about the definition and its imports. If one of them is an error, what [Open] returns
	// must not be used.
	Diagnostics Diagnostics `json:"diagnostics,omitempty"`
	// Environment is the result of [Check] and [Open], except for an empty definition.
	Environment *Environment `json:"environment,omitempty"`
	// Definition is the result of [Encrypt] and [Decrypt].
	Definition []byte `json:"definition,omitempty"`
	// Imports are the names in the definition's imports, in order, as they are written there.
	Imports Names `json:"imports,omitempty"`
}

// Failed reports whether the request could not be served, or a diagnostic is an error.
func (r *Result) Failed() bool {
	return r.Error != "" || r.Diagnostics.HasErrors()
}

// Severity is how bad a diagnostic is. The empty one is an error.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Diagnostic is about a place in a definition. Its JSON form is that of clients.
type Diagnostic struct {
	Range    *Range   `json:"range,omitempty"`
	Summary  string   `json:"summary,omitempty"`
	Detail   string   `json:"detail,omitempty"`
	Severity Severity `json:"severity,omitempty"`
}

// HasErrors reports whether a diagnostic is an error.
func (d Diagnostics) HasErrors() bool {
	return slices.ContainsFunc(d, func(one Diagnostic) bool { return one.Severity != Warning })
}

// Range is a part of a definition.
type Range struct {
	Environment string   `json:"environment,omitempty"`
	Begin       Position `json:"begin"`
	End         Position `json:"end"`
}

// Position is a position in a definition. Lines and columns count from 1, bytes from 0.
type Position struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Byte   int `json:"byte"`
}

// Environment is what an environment evaluates to. Clients get it in this form.
type Environment struct {
	Properties Values `json:"properties,omitempty"`
	// The others are the details, of which the server only needs to know that they are JSON.
	Expressions      json.RawMessage `json:"exprs,omitempty"`
	Schema           json.RawMessage `json:"schema,omitempty"`
	ExecutionContext json.RawMessage `json:"executionContext,omitempty"`
}
