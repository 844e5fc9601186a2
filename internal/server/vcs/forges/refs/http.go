package refs

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
	"workflowagent/internal/workflow"
)

const (
	advertisementPath = "/info/refs?service=git-upload-pack"
	advertisementType = "application/x-git-upload-pack-advertisement"
	requestType       = "application/x-git-upload-pack-request"
	resultType        = "application/x-git-upload-pack-result"
)

func (c *Client) overHTTP(ctx context.Context, repo *workflow.Repository, credential vcs.Credential, prefixes []string, talk talk) error {
	header := map[string]string{"Git-Protocol": "version=2", "User-Agent": "git/2 (workflow-server)"}
	if credential.Password != "" {
		login := credential.UserName + ":" + credential.Password
		header["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(login))
	}
	base := strings.TrimSuffix(repo.String(), "/")
	answer, err := c.call(ctx, "GET", base+advertisementPath, header, nil, advertisementType)
	if err != nil {
		return err
	}
	// A renamed repository redirects the first request, and may not accept the second one at its
	// old address.
	base, ok := strings.CutSuffix(answer.URL, advertisementPath)
	if !ok {
		return errors.New("the server redirected the request to an address of another form")
	}
	r := newReader(bytes.NewReader(answer.Body))
	if bytes.HasPrefix(answer.Body, []byte("001e# service=git-upload-pack\n")) {
		for _, want := range []packet{data, flush} {
			if _, kind, err := r.next(); err != nil || kind != want {
				return errors.New("the server sent an invalid advertisement")
			}
		}
	}
	a, err := readAdvertisement(r, prefixes)
	if err != nil {
		return err
	}
	header["Content-Type"] = requestType
	header["Accept"] = resultType
	return talk(a, func(request []byte) (*reader, error) {
		answer, err := c.call(ctx, "POST", base+"/git-upload-pack", header, request, resultType)
		if errors.Is(err, outbound.ErrTooLarge) {
			err = fault.Wrap(fault.KindTooLarge, err, "the commit is too large to be read")
		}
		return newReader(bytes.NewReader(answer.Body)), err
	})
}

func (c *Client) call(ctx context.Context, method, url string, header map[string]string, body []byte, contentType string) (outbound.Answer, error) {
	answer, err := c.Peer.Do(ctx, outbound.Call{Method: method, URL: url, Header: header, Body: body})
	if err != nil {
		return answer, err
	}
	if err := rest.StatusError(answer); err != nil {
		return answer, err
	}
	if got := strings.Join(answer.Header["Content-Type"], ""); got != contentType {
		return answer, fmt.Errorf("the server responded with the content type %.100q instead of %s: is this the address of a repository that is served with git's smart HTTP protocol?", got, contentType)
	}
	return answer, nil
}
