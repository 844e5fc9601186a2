package source

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"workflowagent/internal/workflow"
)

// failure is the cause of a failed git command. Because git uses one exit code for all causes, the
// cause is derived from git's messages in the C locale.
type failure int

const (
	failureOther       failure = iota
	failureNetwork             // might be temporary
	failureAuth                // the credentials are missing or wrong
	failureNoRepo              // the repository is unknown, or hidden
	failureNoRef               // the repository has no such ref
	failureNoCommit            // the server does not offer this commit by its hash
	failureNoShallow           // the server does not support a shallow fetch
	failureFormat              // the repository's hashes are of another kind than those of the checkout
	failureCertificate         // TLS: the server's certificate is not trusted
	failureHostKey             // SSH: the server's key differs from the known key
	failureSSHMissing          // no ssh program is available
	failureKey                 // the SSH key cannot be used
)

// failureSigns lists messages for each failure. They are matched in this order, specific ones
// first, because every ssh failure ends with the same "Could not read from remote repository".
var failureSigns = []struct {
	failure failure
	signs   []string
}{
	{failureHostKey, []string{"host key verification failed", "remote host identification has changed"}},
	{failureKey, []string{"error in libcrypto", "invalid format", "incorrect passphrase", "bad passphrase"}},
	{failureSSHMissing, []string{"ssh: not found", "ssh: command not found", "cannot run ssh"}},
	{failureCertificate, []string{"certificate problem", "certificate verification failed", "certificate verify failed", "unable to get local issuer"}},
	{failureNoRef, []string{"couldn't find remote ref", "could not find remote ref", "no such remote ref"}},
	{failureNoCommit, []string{"not our ref", "unadvertised object", "no such remote object", "unable to find remote ref"}},
	{failureNoShallow, []string{"does not support shallow", "does not support --depth"}},
	{failureFormat, []string{"mismatched algorithms", "does not support this repository's object format"}},
	{failureAuth, []string{
		"authentication failed", "could not read username", "could not read password", "permission denied (", "access denied",
		"returned error: 401", "returned error: 403", "invalid username or", "invalid credentials", "too many authentication failures",
	}},
	{failureNoRepo, []string{
		"repository not found", "returned error: 404", "not found", "does not appear to be a git repository",
		"repository does not exist", "project you were looking for could not be found", "no such repository",
	}},
	{failureNetwork, []string{
		"could not resolve host", "connection refused", "failed to connect", "connection timed out", "operation timed out", "timed out",
		"early eof", "rpc failed", "unexpected disconnect", "hung up unexpectedly", "connection reset", "connection closed",
		"network is unreachable", "no route to host", "returned error: 5", "returned error: 429", "gnutls", "ssl_connect", "tls connect",
		"bytes of length header", "operation too slow", "temporary failure in name resolution", "could not read from remote repository",
		"empty reply from server", "transfer closed", "http/2 stream", "proxy connect aborted", "unable to access",
	}},
}

// IsFull reports whether a fetch failed because its disk is full.
func IsFull(err error) bool {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return true
	}
	text := ""
	if err != nil {
		text = strings.ToLower(err.Error())
	}
	if failed, ok := errors.AsType[*commandError](err); ok {
		text = strings.ToLower(failed.output)
	}
	return strings.Contains(text, "no space left on device") || strings.Contains(text, "disk quota exceeded")
}

func classify(err error) failure {
	var failed *commandError
	if !errors.As(err, &failed) {
		return failureOther
	}
	output := strings.ToLower(failed.output)
	for _, candidate := range failureSigns {
		for _, sign := range candidate.signs {
			if strings.Contains(output, sign) {
				return candidate.failure
			}
		}
	}
	return failureOther
}

func explain(repo *workflow.Repository, want revision, err error) error {
	var what string
	switch classify(err) {
	case failureNoRef:
		what = want.absent()
	case failureNoCommit:
		what = fmt.Sprintf("commit %s does not exist in the repository", want.asked)
	case failureAuth:
		what = "the server rejected the credentials, or requires credentials and the deployment has none: check the git authentication in the deployment settings"
	case failureNoRepo:
		what = "the repository does not exist, or the credentials give no access to it"
	case failureCertificate:
		what = "the server's TLS certificate is not trusted: add its authority with the agent's ca_certificate_file"
	case failureHostKey:
		what = "the server's SSH host key differs from the known key in the image"
	case failureSSHMissing:
		what = "ssh is not installed where the job runs: use an image that has an SSH client, or an https URL"
	case failureKey:
		what = "the SSH private key cannot be used: it is damaged, or its passphrase is wrong or missing"
	case failureNetwork:
		what = "the server cannot be reached: " + err.Error()
	default:
		return fmt.Errorf("cloning %s: %w", repo, err)
	}
	return fmt.Errorf("cloning %s: %s", repo, what)
}
