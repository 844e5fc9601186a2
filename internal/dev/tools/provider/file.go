package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi-go-provider/infer"
)

// File is a file on the machine that runs the program. A relative path starts at the program's
// directory.
type File struct{}

// FileArgs are the inputs of a [File].
type FileArgs struct {
	Path    string `pulumi:"path" provider:"replaceOnChanges"`
	Content string `pulumi:"content"`
}

// FileState is the state of a [File] in the stack.
type FileState struct {
	FileArgs
	Size int `pulumi:"size"`
}

// Annotate describes the resource and its properties.
func (f *File) Annotate(a infer.Annotator) {
	a.SetToken("index", "File")
	a.Describe(&f, "A file on the machine that runs the program.")
}

// Annotate describes the inputs.
func (f *FileArgs) Annotate(a infer.Annotator) {
	a.Describe(&f.Path, "The path of the file; a relative path starts at the program's directory.")
	a.Describe(&f.Content, "The content of the file.")
}

// Annotate describes the outputs.
func (f *FileState) Annotate(a infer.Annotator) {
	a.Describe(&f.Size, "The size of the file in bytes.")
}

// Create writes the file.
func (File) Create(_ context.Context, req infer.CreateRequest[FileArgs]) (infer.CreateResponse[FileState], error) {
	resp := infer.CreateResponse[FileState]{ID: req.Inputs.Path, Output: stateOf(req.Inputs)}
	if req.DryRun {
		return resp, nil
	}
	return resp, req.Inputs.write()
}

// Update rewrites the file.
func (File) Update(_ context.Context, req infer.UpdateRequest[FileArgs, FileState]) (infer.UpdateResponse[FileState], error) {
	resp := infer.UpdateResponse[FileState]{Output: stateOf(req.Inputs)}
	if req.DryRun {
		return resp, nil
	}
	return resp, req.Inputs.write()
}

// Read returns the current content of the file. It reports a missing file as deleted, so that a
// refresh detects drift.
func (File) Read(_ context.Context, req infer.ReadRequest[FileArgs, FileState]) (infer.ReadResponse[FileArgs, FileState], error) {
	args := req.Inputs
	if args.Path == "" {
		args.Path = req.ID
	}
	content, err := os.ReadFile(args.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return infer.ReadResponse[FileArgs, FileState]{}, nil
	}
	if err != nil {
		return infer.ReadResponse[FileArgs, FileState]{}, fmt.Errorf("reading the file: %w", err)
	}
	args.Content = string(content)
	return infer.ReadResponse[FileArgs, FileState]{ID: req.ID, Inputs: args, State: stateOf(args)}, nil
}

// Delete removes the file. A missing file is not an error.
func (File) Delete(_ context.Context, req infer.DeleteRequest[FileState]) (infer.DeleteResponse, error) {
	err := os.Remove(req.State.Path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return infer.DeleteResponse{}, err
}

func stateOf(args FileArgs) FileState {
	return FileState{FileArgs: args, Size: len(args.Content)}
}

func (f FileArgs) write() error {
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return fmt.Errorf("creating the file's directory: %w", err)
	}
	if err := os.WriteFile(f.Path, []byte(f.Content), 0o644); err != nil {
		return fmt.Errorf("writing the file: %w", err)
	}
	return nil
}
