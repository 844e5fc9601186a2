package podspec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxTemplate limits a template in bytes. A ConfigMap contains at most 1 MiB.
const maxTemplate = 1 << 20

// source is the origin of the template.
type source struct {
	file     string
	optional bool   // a missing file or a directory in its place is no template
	inline   []byte // used if file is ""
	origin   string // for messages
}

func (c Options) source() source {
	switch {
	case c.Template != "":
		return source{inline: []byte(c.Template), origin: c.TemplateOrigin}
	case c.TemplateFile != "":
		return source{file: c.TemplateFile, origin: c.TemplateFile}
	}
	return source{file: c.DefaultTemplateFile, origin: c.DefaultTemplateFile, optional: true}
}

// read returns the template's text, which is empty if there is none.
func (s source) read() ([]byte, error) {
	if s.file == "" {
		return s.inline, nil
	}
	// O_NONBLOCK prevents a named pipe from blocking the agent forever.
	f, err := os.OpenFile(s.file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if s.optional && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the pod template: %w: correct pod_template_file or the file's mode", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the pod template: %w", err)
	case info.IsDir() && s.optional:
		return nil, nil // a mount of a key that the ConfigMap does not have
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file: name the file with the pod template", s.file)
	case info.Mode().Perm()&0o002 != 0:
		return nil, fmt.Errorf("%s: can be written by every user (mode %04o), who could change the pods of this agent: run chmod o-w on it", s.file, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTemplate+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the pod template: %w", err)
	case len(text) > maxTemplate:
		return nil, fmt.Errorf("%s: is larger than 1 MiB: check that it is the right file", s.file)
	}
	return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), nil
}
