// Command replayer replays journals with the code of the Pulumi CLI. Tests compare the server's
// replay with its results.
//
// Each line of the input is a case: {"base", "entries", "got"}. Each line of the output is the
// result: {"want", "got"}, with the official state and the given one in the official encoding, or
// {"error"}.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pulumi/pulumi/pkg/v3/backend"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
)

type replayCase struct {
	Base    apitype.TypedDeployment `json:"base"`
	Entries []apitype.JournalEntry  `json:"entries"`
	Got     apitype.TypedDeployment `json:"got"`
}

type result struct {
	Want  *apitype.TypedDeployment `json:"want,omitempty"`
	Got   *apitype.TypedDeployment `json:"got,omitempty"`
	Error string                   `json:"error,omitempty"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "replayer:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	cases, results := json.NewDecoder(in), bufio.NewWriter(out)
	encoder := json.NewEncoder(results)
	for {
		var c replayCase
		if err := cases.Decode(&c); errors.Is(err, io.EOF) {
			return results.Flush()
		} else if err != nil {
			return fmt.Errorf("reading a case: %w", err)
		}
		want, err := replay(c)
		r := result{Want: &want, Got: &c.Got}
		if err != nil {
			r = result{Error: err.Error()}
		}
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("writing a result: %w", err)
		}
	}
}

// replay returns an error where the CLI's code panics.
func replay(c replayCase) (_ apitype.TypedDeployment, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if c.Base.Deployment == nil {
		c.Base.Deployment = &apitype.DeploymentV3{}
	}
	replayer := backend.NewJournalReplayer(c.Base.Deployment)
	for _, entry := range c.Entries {
		if err := replayer.Add(entry); err != nil {
			return apitype.TypedDeployment{}, err
		}
	}
	return replayer.GenerateDeployment()
}
