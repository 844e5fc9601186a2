// Package refs lists the refs of git repositories over the git protocol, by https and ssh. It needs
// no git program and no clone, so that a server can poll thousands of repositories.
package refs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// Bounds of one list.
const (
	maxRefs  = 100_000
	maxBytes = 10 << 20
	maxTime  = 30 * time.Second // also of each request of [outbound.Peer]
)

// agent is the name that the client sends in the git protocol.
const agent = "agent=workflow-server"

// Client lists refs.
type Client struct {
	// Peer is the server of repositories with https and http addresses.
	Peer *outbound.Peer
	// Reach says which ssh servers may be called.
	Reach outbound.Reach
	// HostKeys are the accepted keys of ssh servers, as lines of known_hosts.
	HostKeys []string

	mu     sync.Mutex
	key    [2]string // text and passphrase of signer
	signer ssh.Signer
}

// List returns the refs of a repository whose full names begin with one of the prefixes, in the
// order of the server. An empty repository has no refs. It speaks protocol version 2, in which the
// server sends only these refs, and the original version with servers that know no other.
func (c *Client) List(ctx context.Context, address string, credential vcs.Credential, prefixes []string) ([]vcs.Ref, error) {
	for _, prefix := range prefixes {
		if strings.ContainsAny(prefix, "\n\x00") || len(prefix) > maxLine/2 {
			return nil, errors.New("listing refs: a prefix is not the beginning of a ref")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	var found []vcs.Ref
	err := c.talk(ctx, address, credential, prefixes, listInto(&found, prefixes))
	return found, fault.While(err, "listing the refs of %s", nameOf(address))
}

func listInto(found *[]vcs.Ref, prefixes []string) talk {
	return func(a advertisement, ask ask) error {
		if !a.version2 {
			*found = a.refs
			return nil
		}
		request, err := a.request(prefixes)
		if err != nil {
			return err
		}
		r, err := ask(request)
		if err == nil {
			*found, err = readRefs(r, prefixes)
		}
		return err
	}
}

// ask sends a request to the server, and returns the reader of its response. talk is what a client says after the server's
// advertisement.
type (
	ask  = func(request []byte) (*reader, error)
	talk = func(a advertisement, ask ask) error
)

func (c *Client) talk(ctx context.Context, address string, credential vcs.Credential, prefixes []string, talk talk) error {
	repo, err := workflow.ParseRepository(address)
	switch {
	case err != nil:
		return fmt.Errorf("parsing the repository's address: %w", err)
	case repo.Scheme == "ssh":
		return c.overSSH(ctx, repo, credential, prefixes, talk)
	case c.Peer == nil:
		return errors.New("the integration has no such server")
	default:
		return c.overHTTP(ctx, repo, credential, prefixes, talk)
	}
}

// nameOf returns the name of a repository for errors, without what else an address can contain.
func nameOf(address string) string {
	repo, err := workflow.ParseRepository(address)
	if err != nil {
		return "a repository"
	}
	return repo.Name()
}

// Find returns the commit of a full ref, or an error that wraps [vcs.ErrNotFound].
func (c *Client) Find(ctx context.Context, address string, credential vcs.Credential, ref string) (commit string, err error) {
	found, err := c.List(ctx, address, credential, []string{ref})
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(found, func(r vcs.Ref) bool { return r.Name == ref })
	if i < 0 {
		return "", fmt.Errorf("finding %s: %w", ref, vcs.ErrNotFound)
	}
	return found[i].Commit, nil
}

// advertisement is a server's first message.
type advertisement struct {
	version2     bool
	listsRefs    bool      // of version 2
	fetches      bool      // of version 2
	filters      bool      // of version 2: it can leave out objects
	objectFormat string    // of version 2, or ""
	refs         []vcs.Ref // of the original version
}

// readAdvertisement reads a server's first message up to its end.
func readAdvertisement(r *reader, prefixes []string) (advertisement, error) {
	var a advertisement
	list := newList(prefixes)
	for first := true; ; first = false {
		line, kind, err := r.next()
		switch {
		case err != nil:
			return a, err
		case kind == flush:
			a.refs = list.refs
			return a, nil
		case kind != data:
			return a, errors.New("the server sent an invalid advertisement")
		}
		text := strings.TrimSuffix(line, "\n")
		switch {
		case first && text == "version 2":
			a.version2 = true
		case first && text == "version 1": // the original version follows
		case a.version2 && (text == "ls-refs" || strings.HasPrefix(text, "ls-refs=")):
			a.listsRefs = true
		case a.version2 && (text == "fetch" || strings.HasPrefix(text, "fetch=")):
			a.fetches = true
			a.filters = slices.Contains(strings.Fields(strings.TrimPrefix(text, "fetch=")), "filter")
		case a.version2:
			if format, ok := strings.CutPrefix(text, "object-format="); ok {
				a.objectFormat = format
			}
		default:
			if err := list.add(advertised(text)); err != nil {
				return a, err
			}
		}
	}
}

// advertised parses a ref of the original version, whose first line also lists capabilities.
func advertised(line string) (object, name, peeled string) {
	line, _, _ = strings.Cut(line, "\x00")
	object, name, _ = strings.Cut(line, " ")
	// The line after an annotated tag's describes the object to which the tag points.
	if tag, ok := strings.CutSuffix(name, "^{}"); ok && tag != "capabilities" {
		return "", tag, object
	}
	return object, name, ""
}

// request returns the messages of version 2 that list refs.
func (a advertisement) request(prefixes []string) ([]byte, error) {
	if !a.listsRefs {
		return nil, errors.New("the server does not list refs")
	}
	w, err := a.command("ls-refs")
	if err != nil {
		return nil, err
	}
	w.line("peel")
	for _, prefix := range prefixes {
		w.line("ref-prefix " + prefix)
	}
	w.flush()
	return w.Bytes(), nil
}

// command returns the beginning of a message of version 2.
func (a advertisement) command(name string) (w writer, err error) {
	w.line("command=" + name)
	w.line(agent)
	if a.objectFormat != "" {
		if a.objectFormat != "sha1" && a.objectFormat != "sha256" {
			return w, errors.New("the server uses an unknown format of objects")
		}
		w.line("object-format=" + a.objectFormat)
	}
	w.delimiter()
	return w, nil
}

// readRefs reads the response to [advertisement.request].
func readRefs(r *reader, prefixes []string) ([]vcs.Ref, error) {
	list := newList(prefixes)
	for {
		line, kind, err := r.next()
		switch {
		case err != nil:
			return nil, err
		case kind == flush:
			return list.refs, nil
		case kind != data:
			return nil, errors.New("the server sent an invalid list of refs")
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(fields) < 2 {
			return nil, errors.New("the server sent an invalid list of refs")
		}
		if fields[0] == "unborn" {
			continue
		}
		peeled := ""
		for _, attribute := range fields[2:] {
			if object, ok := strings.CutPrefix(attribute, "peeled:"); ok {
				peeled = object
			}
		}
		if err := list.add(fields[0], fields[1], peeled); err != nil {
			return nil, err
		}
	}
}

// list collects the refs with one of the prefixes, because servers may send others.
type list struct {
	prefixes []string
	refs     []vcs.Ref
	count    int
}

func newList(prefixes []string) *list { return &list{prefixes: prefixes} }

func (l *list) add(object, name, peeled string) error {
	if l.count++; l.count > maxRefs {
		return fmt.Errorf("the server sent more than %d refs", maxRefs)
	}
	for _, id := range []string{object, peeled} {
		if id != "" && !isObject(id) {
			return errors.New("the server sent an invalid object id")
		}
	}
	if !slices.ContainsFunc(l.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return nil
	}
	if !isFetchable(name) {
		return nil
	}
	if object == "" { // the object of the tag before it
		if last := len(l.refs) - 1; last >= 0 && l.refs[last].Name == name {
			l.refs[last].Commit = peeled
		}
		return nil
	}
	if peeled != "" {
		object = peeled
	}
	l.refs = append(l.refs, vcs.Ref{Name: name, Commit: object})
	return nil
}

func isFetchable(name string) bool {
	return name == "HEAD" || strings.HasPrefix(name, "refs/") && workflow.CheckBranch(name) == nil
}

func isObject(id string) bool {
	return (len(id) == 40 || len(id) == 64) && strings.Trim(id, "0123456789abcdef") == ""
}
