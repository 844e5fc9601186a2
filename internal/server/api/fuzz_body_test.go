package api_test

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

var members = strings.Fields(`name description value stackName tags state config newName newProject plaintext plaintexts ciphertext ciphertexts
	expires admin agentPoolID operation sourceContext git repoUrl branch commit repoDir gitAuth sshAuth basicAuth userName password executorContext executorImage
	operationContext environmentVariables preRunCommands options secret inheritSettings version deployment resources urn type custom outputs features
	metadata message environment runtime main program dryRun events sequence timestamp summaryEvent resourceChanges status duration phase exitCode startedAt
	finishedAt offset lines t l steps step bytes sha256 reason signal secretName commandName url thumbprints maxExpiration jwks keys kty policies decision
	tokenType rules teamName authorizedPermissions orgID userLogin roleID grant_type audience subject_token subject_token_type requested_token_type scope expiration
	secrets_providers encryptedKey encryptionSalt secretsProvider agentPoolId isSecret string object logs cancelRequested`)

var texts = []string{
	`""`, `"x"`, `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `"\ufffe"`, "\"\xff\"", "\"\x01\"", `"0000-01-01T00:00:00+23:59"`, `"9999-12-31T23:59:59-23:59"`,
	`"2024-01-01T00:00:00Z"`, `"AAAA"`, `"not base64"`, `"update"`, `"succeeded"`, `"failed"`, `"running"`, `"https://127.0.0.1:1"`, `"git@127.0.0.1:a/b.git"`, `"http://[::1"`,
	`"../../x"`, `"a.b.c"`, `"eyJhbGciOiJub25lIn0.e30."`, `"urn:pulumi:org:rival"`, `"urn:ietf:params:oauth:grant-type:token-exchange"`,
	`"urn:ietf:params:oauth:token-type:id_token"`, `"urn:pulumi:token-type:access_token:organization"`,
}

var numbers = []string{
	"0", "-0", "1", "-1", "1.5", "1e3", "1" + strings.Repeat("0", 400), "1e400", "-1e400", "1e-400", "9223372036854775807", "-9223372036854775808",
	"9223372036854775808", "18446744073709551616", fmt.Sprint(math.MaxInt32), "253402300800", "4102444800", "999999999999999",
}

func (o *fuzzer) value(depth int) string {
	switch o.IntN(9) {
	case 0, 1:
		return one(o, texts...)
	case 2:
		return one(o, numbers...)
	case 3:
		return one(o, "null", "true", "false", "{}", "[]", "[null]", "[[]]", "[{}]")
	case 4:
		return `"` + strings.Repeat(one(o, "a", `\u0001`, "€", `\\`), one(o, 10, 300, 5000)) + `"`
	case 5, 6:
		if depth > 4 {
			return "{}"
		}
		return o.object(depth + 1)
	case 7:
		if depth > 4 {
			return "[]"
		}
		var list []string
		for range o.IntN(4) {
			list = append(list, o.value(depth+1))
		}
		return "[" + strings.Join(list, ",") + "]"
	default:
		return one(o, `"`+o.ours.names["poolID"]+`"`, `"`+o.theirs.names["poolID"]+`"`, `"`+o.theirs.names["deploymentID"]+`"`, `"`+o.ours.names["issuerID"]+`"`)
	}
}

func (o *fuzzer) object(depth int) string {
	var list []string
	for range 1 + o.IntN(6) {
		list = append(list, `"`+one(o, members...)+`":`+o.value(depth))
	}
	return "{" + strings.Join(list, ",") + "}"
}

// bodies maps the last part of a route to its request body, in which each $ stands for a value.
var bodies = map[string]string{
	"/tokens":         `{"name":$,"description":$,"expires":$,"admin":$}`,
	"/agent-pools":    `{"name":$,"description":$}`,
	"/{poolID}":       `{"name":$,"description":$}`,
	"/{project}":      `{"stackName":$,"tags":{"a":$},"config":{"environment":$},"state":$}`,
	"/rename":         `{"newName":$,"newProject":$}`,
	"/tags":           `{"name":$,"value":$}`,
	"/tags/{tag}":     `{"value":$}`,
	"/config":         `{"environment":$,"secretsProvider":$}`,
	"/import":         `{"version":3,"deployment":{"manifest":{},"secrets_providers":{"type":"service","state":$},"resources":[{"urn":$,"outputs":{"a":{"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270","ciphertext":$}}}]}}`,
	"/checkpoint":     `{"isInvalid":$,"version":3,"features":$,"deployment":{"resources":[$,$]}}`,
	"/journalentries": `{"entries":[{"version":1,"kind":0,"sequenceID":$,"operationID":$,"operation":{"resource":$,"type":$}},{"version":1,"kind":1,"sequenceID":2,"operationID":1,"removeOld":$,"state":{"urn":$,"type":$}},{"version":1,"kind":5,"sequenceID":3,"newSnapshot":$}]}`,
	"/encrypt":        `{"plaintext":$}`,
	"/batch-encrypt":  `{"plaintexts":[$,$]}`,
	"/decrypt":        `{"ciphertext":$}`,
	"/batch-decrypt":  `{"ciphertexts":[$,$]}`,
	"/update":         `{"name":$,"options":{"dryRun":$},"config":{"a":{"string":$}},"metadata":{"message":$,"environment":{"ci.build.id":$}}}`,
	"/preview":        `{"name":$,"config":{"a":{"string":$}},"metadata":{"message":$,"environment":{"ci.build.id":$}}}`,
	"/begin-update":   `{"updateKind":"update","program":{"name":$,"config":{"a":{"string":$}},"coherenceWindow":$},"tags":{"a":$},"journalVersion":$}`,
	"/{updateID}":     `{"tags":{"a":$,"pulumi:project":$}}`,
	"/renew_lease":    `{"token":$,"duration":$}`,
	"/events":         `{"sequence":$,"timestamp":$,"summaryEvent":{"resourceChanges":$}}`,
	"/batch":          `{"events":[{"sequence":$,"timestamp":$},{"sequence":7,"diagnosticEvent":$}]}`,
	"/complete":       `{"status":$}`,
	"/settings":       `{"agentPoolID":$,"sourceContext":{"git":{"repoUrl":$,"branch":$,"commit":$,"repoDir":$,"gitAuth":{"basicAuth":{"userName":$,"password":{"secret":$}}}}},"operationContext":{"environmentVariables":{"A":$,"B":{"secret":$}},"preRunCommands":$,"options":$},"executorContext":{"executorImage":$}}`,
	"/deployments":    `{"operation":$,"inheritSettings":$,"agentPoolID":$,"sourceContext":{"git":{"repoUrl":$,"branch":$}},"operationContext":{"environmentVariables":{"A":$}}}`,
	"/heartbeat":      `{"phase":$}`,
	"/oidc-token":     `{"audience":$}`,
	"/status":         `{"status":"running","exitCode":$,"startedAt":$,"finishedAt":$}`,
	"/logs":           `{"offset":$,"lines":[{"t":$,"l":$}]}`,
	"/result":         `{"status":"failed","reason":$,"message":$,"exitCode":$,"signal":$,"finishedAt":$,"logs":[{"step":$,"bytes":$,"sha256":$}]}`,
	"/issuers":        `{"name":$,"url":$,"thumbprints":$,"maxExpiration":$,"jwks":$}`,
	"/{issuerID}":     `{"name":$,"thumbprints":$,"maxExpiration":$,"jwks":{"keys":[{"kty":$,"kid":$,"n":$,"e":$}]}}`,
	"/{policyID}":     `{"policies":[{"decision":$,"tokenType":$,"teamName":$,"rules":{"sub":$,"aud":$}}]}`,
	"/default":        `{"agentPoolID":$}`,
	"/oauth/token":    `{"grant_type":"urn:ietf:params:oauth:grant-type:token-exchange","audience":$,"subject_token_type":"urn:ietf:params:oauth:token-type:id_token","requested_token_type":$,"subject_token":$,"scope":$,"expiration":$}`,
	"/log-decryption": `{"secretName":$,"commandName":$}`,
}

// body returns headers and an almost valid body for a route, or headers and no body.
func (o *fuzzer) body(route string) ([]byte, http.Header) {
	header := http.Header{}
	o.headers(header)
	var body []byte
	switch o.IntN(12) {
	case 0:
		body = []byte(one(o, "", "{", "null", "[]", "{}", "\x00", "\xff\xfe", "[1", `{"a":1}{"b":2}`, strings.Repeat("[", 20_000), strings.Repeat(`{"a":`, 20_000), `{"events":[`+strings.Repeat("[],", 50_000)+"[]]}"))
	case 1:
		header.Set("Content-Encoding", one(o, "gzip", "zstd", "gzip, gzip", "br", "\xff"))
		body = []byte(one(o, "", "x", "\x1f\x8b\x08\x00", "\x28\xb5\x2f\xfd\x00"))
	case 2:
		return o.bomb(header), header
	case 3, 4:
		body = []byte(o.object(0))
	default:
		template := `{"status":$}`
		for suffix, b := range bodies {
			if strings.HasSuffix(route, suffix) {
				template = b
			}
		}
		var b strings.Builder
		for i, part := range strings.Split(template, "$") {
			if i > 0 {
				b.WriteString(o.value(2))
			}
			b.WriteString(part)
		}
		body = []byte(b.String())
	}
	if o.chance(8) && header.Get("Content-Encoding") == "" {
		header.Set("Content-Encoding", "gzip")
		body = packed(body)
	}
	return body, header
}

// bomb returns a small compressed body that inflates to a large one.
func (o *fuzzer) bomb(header http.Header) []byte {
	inside := bytes.Repeat([]byte(one(o, " ", `"",`, "[", `{"a":`, "0,", `{"sequence":1},`)), one(o, 1<<16, 1<<20, 4<<20))
	inside = append([]byte(one(o, "", `{"plaintexts":[`, `{"events":[`, `{"deployment":{"resources":[`)), inside...)
	if o.chance(2) {
		header.Set("Content-Encoding", "gzip")
		return packed(inside)
	}
	header.Set("Content-Encoding", "zstd")
	z, err := zstd.NewWriter(nil)
	if err != nil {
		o.lab.t.Fatal(err)
	}
	return z.EncodeAll(inside, nil)
}

func packed(p []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write(p) // never fails on a buffer
	_ = z.Close()
	return buf.Bytes()
}

func (o *fuzzer) headers(h http.Header) {
	for _, name := range []string{
		"X-Workflow-Agent-Id", "X-Workflow-Agent-Session", "X-Workflow-Agent-Hostname", "X-Workflow-Agent-Pid", "X-Workflow-Agent-Slots", "X-Workflow-Agent-Interval",
		"X-Workflow-Poll-Id", "X-Workflow-Nonce", "X-Pulumi-Deployment-Initiator", "X-Pulumi-Source", "Accept", "Accept-Encoding", "Range", "If-None-Match", "If-Modified-Since",
		"User-Agent", "Expect", "X-Forwarded-For", "X-Forwarded-Host", "Content-Type", "Origin",
	} {
		if o.chance(10) {
			h.Set(name, one(o, "", "x", "0", "-1", "1", "99999999999999999999", "\xff\xfe", "gzip", "*", "bytes=5-1,0-0,-1", "€", strings.Repeat("h", 5000)))
		}
	}
	// A longer wait would make the server hold the poll.
	if o.chance(10) {
		h.Set("Prefer", one(o, "wait=0", "wait", "wait=x", "wait=-5", "respond-async"))
	}
	h.Del("Expect")
}
