package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/policypack"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

const (
	maxState  = 1 << 30 // bytes
	maxAnswer = 64 << 10
	// callTries bounds the attempts of one call. Their pauses are 0.5 s to 10 s.
	callTries = 12
)

var callRetry = retry.Policy{First: 500 * time.Millisecond, Max: 10 * time.Second}

// State fetches the state.
func State(ctx context.Context, p *Params, out io.Writer) error {
	e := p.Evaluation
	path := "/api/stacks/" + escape(e.Organization, e.Project, e.Stack) + "/export/" + strconv.FormatInt(e.Version, 10)
	size := int64(0)
	err := p.call(ctx, out, "fetching the state", func(ctx context.Context, client *http.Client) error {
		if err := rewind(p.state); err != nil {
			return err
		}
		req, err := p.request(ctx, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		size, err = fetch(client, req, p.state, maxState)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Fetched version %d of %s (%d bytes) for the policy group %s\n", e.Version, e.StackName(), size, termtext.OneLine(e.Group, maxShown))
	return nil
}

// maxShown bounds names in the log, in bytes.
const maxShown = 200

// Install fetches the packs' archives and checks their digests. A pack that cannot be fetched does not keep the others
// from being evaluated.
func Install(ctx context.Context, p *Params, out io.Writer) error {
	results, err := p.readResults()
	if err != nil {
		return err
	}
	for i, pack := range p.Evaluation.Packs {
		name := termtext.OneLine(pack.Label(), maxShown)
		err := p.fetchPack(ctx, out, pack, p.packs[i])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			results.Packs[i].Error = termtext.OneLine(err.Error(), maxError)
			fmt.Fprintf(out, "%s: %s\n", name, results.Packs[i].Error)
			continue
		}
		fmt.Fprintf(out, "%s: fetched, sha256 %s\n", name, termtext.OneLine(pack.SHA256, sha256.Size*2))
	}
	if err := p.writeResults(results); err != nil {
		return err
	}
	return failed(results)
}

func (p *Params) fetchPack(ctx context.Context, out io.Writer, pack workflow.PolicyPack, file *os.File) error {
	sum, err := digest(pack)
	if err != nil {
		return err
	}
	hash := sha256.New()
	err = p.call(ctx, out, "fetching the policy pack", func(ctx context.Context, client *http.Client) error {
		if err := rewind(file); err != nil {
			return err
		}
		hash.Reset()
		// Its address is its credential. It gets no token.
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, pack.Location, nil)
		if err != nil {
			return &finalError{errors.New("the address of the policy pack is invalid")}
		}
		req.Header.Set("User-Agent", p.UserAgent)
		_, err = fetch(client, req, io.MultiWriter(file, hash), policypack.MaxArchive)
		return err
	})
	if err != nil {
		return err
	}
	if [sha256.Size]byte(hash.Sum(nil)) != sum {
		return errors.New("the archive does not have the sha256 of the published pack")
	}
	return nil
}

func digest(pack workflow.PolicyPack) (sum [sha256.Size]byte, err error) {
	raw, err := hex.DecodeString(pack.SHA256)
	if err != nil || len(raw) != len(sum) {
		return sum, errors.New("the job definition has no valid sha256 of the policy pack")
	}
	return [sha256.Size]byte(raw), nil
}

// Report sends the results to the server.
func Report(ctx context.Context, p *Params, out io.Writer) error {
	results, err := p.readResults()
	if err != nil {
		return err
	}
	e := p.Evaluation
	results.Succeeded = failed(results) == nil
	body, err := json.Marshal(workflow.PolicyReport{ClaimID: e.ClaimID, Results: results})
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	path := "/api/preview/insights/" + url.PathEscape(e.Organization) + "/policy/stacks/" + escape(e.Project, e.Stack) +
		"/updates/" + strconv.FormatInt(e.Version, 10) + "/results"
	err = p.call(ctx, out, "reporting the results", func(ctx context.Context, client *http.Client) error {
		req, err := p.request(ctx, http.MethodPut, path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		_, err = fetch(client, req, io.Discard, maxAnswer)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Reported %s\n", words.Count(len(results.Violations), "violation"))
	if results.Truncated {
		fmt.Fprintln(out, "warning: the packs found more violations than a report may contain; the others are only in the log")
	}
	return nil
}

func escape(parts ...string) string {
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// request returns a request to the server with the evaluation's token.
func (p *Params) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(p.ServiceURL, "/")+path, body)
	if err != nil {
		return nil, &finalError{errors.New("the server's URL is invalid")}
	}
	req.Header.Set("Authorization", "token "+p.Evaluation.AccessToken)
	req.Header.Set("Accept", "application/vnd.pulumi+8")
	req.Header.Set("User-Agent", p.UserAgent)
	return req, nil
}

// finalError is an error that a repetition does not change.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }

func (e *finalError) Unwrap() error { return e.err }

// call makes one call, which it repeats while a repetition can help.
func (p *Params) call(ctx context.Context, out io.Writer, what string, do func(ctx context.Context, client *http.Client) error) error {
	transport, err := protocol.NewTransport([]byte(p.CACertPEM))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: protocol.SameProtocol{RoundTripper: transport}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirect could carry the token elsewhere
	}}
	defer client.CloseIdleConnections()
	tries := 0
	err = callRetry.Do(ctx, func(err error) bool {
		var final *finalError
		if tries++; errors.As(err, &final) || tries >= callTries {
			return false
		}
		fmt.Fprintf(out, "%s failed, trying again: %s\n", what, termtext.OneLine(short(err).Error(), maxError))
		return true
	}, func() error { return do(ctx, client) })
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("%s: %w", what, short(err))
	}
	return nil
}

// short returns an error of the HTTP client without the URL, which can be a credential.
func short(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// fetch sends a request and copies the body of a successful response, of at most limit bytes.
func fetch(client *http.Client, req *http.Request, to io.Writer, limit int64) (int64, error) {
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() // read only
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // is only shown
		err := fmt.Errorf("the server answers %s: %s", resp.Status, message(text))
		if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout {
			return 0, &finalError{err}
		}
		return 0, err
	}
	n, err := io.Copy(to, io.LimitReader(resp.Body, limit+1))
	if err == nil && n > limit {
		err = &finalError{fmt.Errorf("the answer is larger than %d bytes", limit)}
	}
	return n, err
}

func message(body []byte) string {
	var failed struct {
		Message     string `json:"message"`
		Diagnostics []struct {
			Summary string `json:"summary"`
		} `json:"diagnostics"` // of environments
	}
	if json.Unmarshal(body, &failed) != nil {
		return "no JSON"
	}
	if len(failed.Diagnostics) > 0 {
		failed.Message = failed.Diagnostics[0].Summary
	}
	return termtext.OneLine(failed.Message, maxError)
}
