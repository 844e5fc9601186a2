package refs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // OpenSSH's format of known_hosts
	"crypto/subtle"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

func (c *Client) overSSH(ctx context.Context, repo *workflow.Repository, credential vcs.Credential, prefixes []string, talk talk) error {
	address := repo.Host
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "22")
	}
	config, err := c.config(repo, credential, address)
	if err != nil {
		return err
	}
	conn, err := outbound.Dial(ctx, address, c.Reach)
	if err != nil {
		return err
	}
	// Closing the connection ends every wait below.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	err = talkOn(conn, address, config, repo.Path(), prefixes, talk)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s did not respond in time: %w", repo.Host, context.Cause(ctx))
	}
	return err
}

func talkOn(conn net.Conn, address string, config *ssh.ClientConfig, path string, prefixes []string, talk talk) error {
	connection, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		return explain(err)
	}
	client := ssh.NewClient(connection, channels, requests)
	defer func() { _ = client.Close() }() // also closes the session
	session, err := client.NewSession()
	if err != nil {
		return fmt.Errorf("the ssh server opened no session: %w", err)
	}
	// Servers ignore the variable if they do not accept it, and then speak the original version.
	if err := session.Setenv("GIT_PROTOCOL", "version=2"); err != nil && !isRefusal(err) {
		return err
	}
	stdin, err := session.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := session.StdoutPipe()
	if err != nil {
		return err
	}
	if err := session.Start("git-upload-pack " + quote(path)); err != nil {
		return fmt.Errorf("the ssh server does not run git-upload-pack: %w", err)
	}
	return converse(newReader(stdout), stdin, prefixes, talk)
}

// isRefusal reports whether a server refused to set a variable. The library has no type for it.
func isRefusal(err error) bool { return err.Error() == "ssh: setenv failed" }

func converse(r *reader, w io.Writer, prefixes []string, talk talk) error {
	a, err := readAdvertisement(r, prefixes)
	if errors.Is(err, errTruncated) {
		// The server reports the cause on stderr, in words of its own.
		return fmt.Errorf("the server sent no refs: %w", vcs.ErrNotFound)
	}
	if err != nil {
		return err
	}
	err = talk(a, func(request []byte) (*reader, error) {
		_, err := w.Write(request)
		return r, err
	})
	if err != nil {
		return err
	}
	// An empty request ends the conversation. Its failure cannot change what was read.
	_, _ = io.WriteString(w, "0000")
	return nil
}

// quote quotes an argument of the command that the server's shell parses.
func quote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(s) + "'"
}

func (c *Client) config(repo *workflow.Repository, credential vcs.Credential, address string) (*ssh.ClientConfig, error) {
	if credential.SSHPrivateKey == "" {
		return nil, fmt.Errorf("the integration has no SSH key: %w", vcs.ErrRefused)
	}
	signer, err := c.signerOf(credential)
	if err != nil {
		return nil, err
	}
	keys, err := pinned(c.HostKeys, address)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("the integration has no host key of %s: add the output of ssh-keyscan after comparing it with the server's", repo.Host)
	}
	return &ssh.ClientConfig{
		User:              cmp.Or(repo.User, credential.UserName, "git"),
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback:   checkHostKey(keys),
		HostKeyAlgorithms: algorithms(keys),
	}, nil
}

// signerOf returns a parsed key. It remembers the last one, because decrypting a key with a passphrase
// takes half a second.
func (c *Client) signerOf(credential vcs.Credential) (ssh.Signer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [2]string{credential.SSHPrivateKey, credential.SSHPassphrase}
	if c.signer != nil && c.key == key {
		return c.signer, nil
	}
	signer, err := parseKey(credential)
	if err == nil {
		c.key, c.signer = key, signer
	}
	return signer, err
}

// CheckKey returns an error unless a private key can be used.
func CheckKey(credential vcs.Credential) error {
	_, err := parseKey(credential)
	return err
}

func parseKey(credential vcs.Credential) (ssh.Signer, error) {
	// Web forms remove a key's final newline and add carriage returns.
	text := []byte(strings.TrimSpace(strings.ReplaceAll(credential.SSHPrivateKey, "\r\n", "\n")) + "\n")
	if n := rounds(text); n > maxRounds {
		return nil, fmt.Errorf("decrypting the SSH private key takes %d rounds, and at most %d are accepted: run ssh-keygen -p -a %d", n, maxRounds, maxRounds)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if _, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok && credential.SSHPassphrase != "" {
		if signer, err = ssh.ParsePrivateKeyWithPassphrase(text, []byte(credential.SSHPassphrase)); err != nil {
			return nil, errors.New("the passphrase does not fit the SSH private key")
		}
	} else if ok {
		return nil, errors.New("the SSH private key needs a passphrase")
	}
	if err != nil {
		return nil, errors.New("the SSH private key is not in PEM or OpenSSH format")
	}
	return signer, nil
}

// maxRounds bounds the time for which one organization's key occupies the server.
const maxRounds = 100

// rounds returns the cost of decrypting a key in OpenSSH format, or 0 for others.
func rounds(text []byte) uint32 {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "OPENSSH PRIVATE KEY" {
		return 0
	}
	var key struct {
		Cipher, KDF, Options string
		Rest                 []byte `ssh:"rest"`
	}
	var options struct {
		Salt   string
		Rounds uint32
	}
	body, ok := bytes.CutPrefix(block.Bytes, []byte("openssh-key-v1\x00"))
	if !ok || ssh.Unmarshal(body, &key) != nil || ssh.Unmarshal([]byte(key.Options), &options) != nil {
		return 0
	}
	return options.Rounds
}

// CheckHostKeys returns an error unless all lines are keys of hosts.
func CheckHostKeys(lines []string) error {
	_, err := pinned(lines, "")
	return err
}

// pinned returns the keys of a host. Lines are those of known_hosts, without patterns and markers.
func pinned(lines []string, address string) ([]ssh.PublicKey, error) {
	var keys []ssh.PublicKey
	for _, line := range lines {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		marker, hosts, key, _, rest, err := ssh.ParseKnownHosts([]byte(line))
		if err != nil || marker != "" || len(rest) > 0 || strings.ContainsAny(strings.Join(hosts, ","), "*?!") {
			return nil, errors.New("a host key is not a line of known_hosts with a host, a type and a key, such as ssh-keyscan prints")
		}
		if slices.ContainsFunc(hosts, func(host string) bool { return isHost(host, knownhosts.Normalize(address)) }) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// isHost compares a name of known_hosts, which can be hashed.
func isHost(name, host string) bool {
	hashed, ok := strings.CutPrefix(name, "|1|")
	if !ok {
		return strings.EqualFold(knownhosts.Normalize(name), host)
	}
	salt, sum, _ := strings.Cut(hashed, "|")
	key, err := base64.StdEncoding.DecodeString(salt)
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, key)
	mac.Write([]byte(host))
	return sum == base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

var errHostKey = errors.New("the ssh server's host key is none of those of the integration: either the key was changed, or another server responds")

func checkHostKey(keys []ssh.PublicKey) ssh.HostKeyCallback {
	return func(_ string, _ net.Addr, key ssh.PublicKey) error {
		for _, known := range keys {
			if subtle.ConstantTimeCompare(key.Marshal(), known.Marshal()) == 1 {
				return nil
			}
		}
		return errHostKey
	}
}

// algorithms returns the algorithms of the keys, so that the server sends one of these keys.
func algorithms(keys []ssh.PublicKey) []string {
	var names []string
	for _, key := range keys {
		if key.Type() == ssh.KeyAlgoRSA {
			names = append(names, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			names = append(names, key.Type())
		}
	}
	return names
}

func explain(err error) error {
	switch {
	case errors.Is(err, errHostKey):
		return errHostKey
	case strings.Contains(err.Error(), "no common algorithm for host key"):
		return errHostKey
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Errorf("the ssh server does not accept the key: %w", vcs.ErrRefused)
	}
	return fmt.Errorf("the ssh handshake failed: %w", err)
}
