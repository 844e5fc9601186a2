package fleet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/retry"
)

// The clients of a flood.
const (
	guessers    = 32  // send wrong tokens, one after another
	giants      = 16  // send bodies of giantBody bytes without a token
	slowReaders = 200 // request a large document and do not read it
	slowSenders = 100 // send the beginning of a body and nothing else
	giantBody   = 256 << 20
	largePath   = "/api/openapi/pulumi-spec.json"
)

// StrangersCommand is the first argument of the program that floods a server; the second one is the server's URL.
const StrangersCommand = "strangers"

// flood counts what strangers have sent.
type flood struct{ Guessed, Sent, Unread, Begun int }

// whileFlooded does work while strangers flood a server. The strangers are a process of low priority: they have machines
// of their own, and must not take the processors of the server, nor those of the agents whose calls are measured.
func whileFlooded(ctx context.Context, url string, work func() error) (f flood, err error) {
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	var out bytes.Buffer
	cmd := child.Command(ctx, "nice", "-n", "15", self, StrangersCommand, url)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		return f, fmt.Errorf("starting a flood: %w", err)
	}
	err = work()
	_ = cmd.Process.Signal(syscall.SIGTERM) // an early end is an error of Wait
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return f, err
	}
	return f, json.Unmarshal(out.Bytes(), &f)
}

// Strangers floods a server with calls without valid credentials until ctx ends. It then writes how many there were.
func Strangers(ctx context.Context, url string, out io.Writer) error {
	var f flood
	var mu sync.Mutex
	var clients sync.WaitGroup
	repeat := func(n int, count *int, do func() error) {
		for range n {
			clients.Go(func() {
				for ctx.Err() == nil {
					if do() != nil {
						_ = retry.Sleep(ctx, 10*time.Millisecond) // the server refuses connections
						continue
					}
					mu.Lock()
					*count++
					mu.Unlock()
				}
			})
		}
	}
	address := strings.TrimPrefix(url, "http://")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: guessers}}
	repeat(guessers, &f.Guessed, func() error {
		return strange(ctx, client, http.MethodGet, url+"/api/user", "token pul-"+rand.Text(), nil)
	})
	repeat(giants, &f.Sent, func() error {
		return strange(ctx, client, http.MethodPost, url+"/api/oauth/token", "", io.LimitReader(zeros{}, giantBody))
	})
	repeat(slowReaders, &f.Unread, func() error { return hang(ctx, address, "GET "+largePath+" HTTP/1.1\r\nHost: x\r\n\r\n") })
	repeat(slowSenders, &f.Begun, func() error {
		return hang(ctx, address, "POST /api/oauth/token HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
	})
	clients.Wait()
	client.CloseIdleConnections()
	return json.NewEncoder(out).Encode(f)
}

// strange makes a call of a stranger. Every response is right.
func strange(ctx context.Context, client *http.Client, method, url, authorization string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}

// hang sends a request, reads one byte of the response and nothing more until the server closes the connection, or a
// while has passed.
func hang(ctx context.Context, address, request string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	_, _ = bufio.NewReaderSize(conn, 16).ReadByte()
	<-ctx.Done()
	return nil
}

type zeros struct{}

// Read implements [io.Reader].
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
