package languagehost

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// installRequest is the part of an InstallDependenciesRequest that the host uses.
type installRequest struct {
	dir string
}

// runRequest is the part of a RunPluginRequest that the host uses.
type runRequest struct {
	dir       string // the pack's directory
	workDir   string
	args, env []string
	kind      string // the kind of plugin
}

func parseInstall(message []byte) (*installRequest, error) {
	r := &installRequest{}
	err := fields(message, func(number protowire.Number, value []byte) (err error) {
		switch number {
		case 1: // CLIs before 3.112 send only this field
			if r.dir == "" {
				r.dir = string(value)
			}
		case 3:
			r.dir, err = parseProgram(value)
		}
		return err
	})
	return r, err
}

func parseRun(message []byte) (*runRequest, error) {
	r := &runRequest{}
	err := fields(message, func(number protowire.Number, value []byte) (err error) {
		switch number {
		case 1:
			r.workDir = string(value)
		case 2: // older CLIs send only this field
			if r.dir == "" {
				r.dir = string(value)
			}
		case 3:
			r.args = append(r.args, string(value))
		case 4:
			r.env = append(r.env, string(value))
		case 5:
			r.dir, err = parseProgram(value)
		case 6:
			r.kind = string(value)
		}
		return err
	})
	return r, err
}

// parseProgram returns the program's directory of a ProgramInfo.
func parseProgram(message []byte) (dir string, err error) {
	err = fields(message, func(number protowire.Number, value []byte) error {
		if number == 2 {
			dir = string(value)
		}
		return nil
	})
	return dir, err
}

// fields calls each with the fields of a message that have a length: texts and messages.
func fields(message []byte, each func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return invalid(n)
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return invalid(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return invalid(n)
		}
		if err := each(number, value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

func invalid(n int) error {
	return &failure{codeInvalid, fmt.Sprintf("parsing the request: %v", protowire.ParseError(n))}
}

// appendText appends a text field to a message.
func appendText[T string | []byte](message []byte, number protowire.Number, text T) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), []byte(text))
}

// appendNumber appends a field with a number to a message.
func appendNumber(message []byte, number protowire.Number, value int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(message, number, protowire.VarintType), uint64(value))
}
