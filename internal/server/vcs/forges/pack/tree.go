package pack

import (
	"bytes"
	"encoding/hex"
	"strings"
)

// Entry is an entry of a tree, which is the content of a folder.
type Entry struct {
	Name string
	ID   string
	// Folder and Regular report what the entry is. Links and modules are neither.
	Folder, Regular bool
}

// Root returns the id of the tree of a commit.
func (p *Pack) Root(commit string) (string, error) {
	content, ok := p.Object(Commit, commit)
	line, _, _ := strings.Cut(string(content), "\n")
	id, found := strings.CutPrefix(line, "tree ")
	if !ok || !found {
		return "", errInvalid
	}
	return id, nil
}

// Entries returns the entries of a tree.
func (p *Pack) Entries(tree string) ([]Entry, error) {
	content, ok := p.Object(Tree, tree)
	if !ok {
		return nil, errInvalid
	}
	idBytes := len(tree) / 2
	var list []Entry
	for len(content) > 0 {
		if len(list) == MaxObjects { // an entry needs more memory than its text
			return nil, errTooLarge
		}
		head, rest, ok := bytes.Cut(content, []byte{0})
		mode, name, named := strings.Cut(string(head), " ")
		if !ok || !named || len(rest) < idBytes {
			return nil, errInvalid
		}
		list = append(list, Entry{
			Name: name, ID: hex.EncodeToString(rest[:idBytes]), Folder: strings.TrimLeft(mode, "0") == "40000", Regular: strings.HasPrefix(mode, "100"),
		})
		content = rest[idBytes:]
	}
	return list, nil
}
