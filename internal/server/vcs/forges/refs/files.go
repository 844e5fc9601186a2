package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/pack"
)

const (
	// readTime bounds the reading of files.
	readTime = 2 * time.Minute
	// maxFiles bounds the number of files that are read of a commit.
	maxFiles = 10_000
)

// Files returns the regular files in a folder of a commit that wanted selects; see [vcs.Reader]. The server sends only these
// files, and the names of all others, if it can leave out objects.
func (c *Client) Files(ctx context.Context, address string, credential vcs.Credential, commit, folder string, wanted func(path string) bool) ([]vcs.File, error) {
	if !isObject(commit) {
		return nil, errors.New("reading files: the commit has no full id")
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var files []vcs.File
	// Only the advertisement of an older version lists refs, which are not used.
	err := c.talk(ctx, address, credential, nil, func(a advertisement, ask ask) (err error) {
		files, err = readFiles(ctx, a, ask, commit, folder, wanted)
		return err
	})
	return files, fault.While(err, "reading files of %s", nameOf(address))
}

func readFiles(ctx context.Context, a advertisement, ask ask, commit, folder string, wanted func(string) bool) ([]vcs.File, error) {
	if !a.version2 || !a.fetches {
		return nil, errors.New("the git server does not speak version 2 of git's protocol, with which this server reads files")
	}
	objects, err := fetch(ctx, a, ask, true, commit)
	if err != nil {
		return nil, err
	}
	found, err := find(objects, commit, folder, wanted)
	if err != nil {
		return nil, err
	}
	var missing []string
	asked := map[string]bool{}
	for _, e := range found {
		if _, ok := objects.Object(pack.Blob, e.ID); !ok && !asked[e.ID] {
			asked[e.ID] = true
			missing = append(missing, e.ID)
		}
	}
	contents := objects
	if len(missing) > 0 {
		if contents, err = fetch(ctx, a, ask, false, missing...); err != nil {
			return nil, err
		}
	}
	var files []vcs.File
	for _, e := range found {
		content, ok := contents.Object(pack.Blob, e.ID)
		if !ok {
			content, ok = objects.Object(pack.Blob, e.ID)
		}
		if !ok {
			return nil, fmt.Errorf("the server did not send the file %s", e.Name)
		}
		files = append(files, vcs.File{Path: e.Name, Content: string(content)})
	}
	return files, nil
}

// find returns the wanted files in a folder, with their paths as names.
func find(objects *pack.Pack, commit, folder string, wanted func(string) bool) (files []pack.Entry, err error) {
	tree, err := objects.Root(commit)
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.Trim(folder, "/"), "/") {
		if name == "" {
			continue
		}
		entries, err := objects.Entries(tree)
		if err != nil {
			return nil, err
		}
		tree = ""
		for _, e := range entries {
			if e.Name == name && e.Folder {
				tree = e.ID
			}
		}
		if tree == "" {
			return nil, fmt.Errorf("the commit %s has no folder %q: %w", commit, folder, vcs.ErrNoFolder)
		}
	}
	visited := 0
	var walk func(tree, below string) error
	walk = func(tree, below string) error {
		entries, err := objects.Entries(tree)
		if err != nil {
			return err
		}
		for _, e := range entries {
			// One tree can be the content of any number of folders.
			if visited++; visited > pack.MaxObjects {
				return fault.New(fault.KindTooLarge, "the folder %q of the commit contains too many files and folders", folder)
			}
			e.Name = path.Join(below, e.Name)
			switch {
			case e.Folder && wanted(e.Name+"/"):
				err = walk(e.ID, e.Name)
			case e.Regular && wanted(e.Name):
				if files = append(files, e); len(files) > maxFiles {
					err = fault.New(fault.KindTooLarge, "the folder %q of the commit contains more than %d such files", folder, maxFiles)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return files, walk(tree, "")
}

// fetch requests objects: commits with their trees, and their files unless the server can leave them out; or files. It charges
// their memory to the request.
func fetch(ctx context.Context, a advertisement, ask ask, commits bool, ids ...string) (*pack.Pack, error) {
	w, err := a.command("fetch")
	if err != nil {
		return nil, err
	}
	w.line("ofs-delta")
	w.line("no-progress")
	if commits {
		w.line("deepen 1")
		if a.filters {
			w.line("filter blob:none")
		}
	}
	for _, id := range ids {
		w.line("want " + id)
	}
	w.line("done")
	w.flush()
	share := budget.Of(ctx)
	const reading = 3 * maxBytes // the response, its packets and the pack
	if err := share.Take(ctx, reading); err != nil {
		return nil, err
	}
	defer share.Give(reading)
	r, err := ask(w.Bytes())
	if err != nil {
		return nil, err
	}
	raw, err := readPack(r)
	if err != nil {
		return nil, err
	}
	p, err := pack.Parse(raw, len(ids[0])/2)
	if err == nil {
		err = share.Take(ctx, int64(p.Bytes()))
	}
	return p, err
}

// readPack reads the response to a request for objects.
func readPack(r *reader) ([]byte, error) {
	const objects = "packfile"
	var raw bytes.Buffer
	section := ""
	for {
		line, kind, err := r.next()
		switch {
		case err != nil:
			if failed, ok := errors.AsType[*serverError](err); ok && strings.Contains(failed.message, "not our ref") {
				return nil, fmt.Errorf("the server has no such commit: %w", vcs.ErrNotFound)
			}
			return nil, err
		case kind == flush && section == objects:
			return raw.Bytes(), nil
		case kind == delimiter && section != "" && section != objects:
			section = ""
		case kind != data:
			return nil, errors.New("the server sent an invalid response to a request for objects")
		case section == "":
			section = strings.TrimSuffix(line, "\n")
		case section != objects: // such as the list of commits whose parents are missing
		case line == "":
			return nil, errors.New("the server sent an invalid response to a request for objects")
		case line[0] == 1:
			raw.WriteString(line[1:])
		case line[0] == 3:
			return nil, &serverError{strings.TrimSpace(line[1:])}
		}
	}
}
