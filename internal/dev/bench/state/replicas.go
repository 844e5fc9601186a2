package state

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"workflowagent/internal/dev/bench/proxy"
	"workflowagent/internal/dev/lab"
)

const replicas = 2

// startReplicas starts servers that share a PostgreSQL database. A proxy passes consecutive calls
// of an update to different servers.
func (b *Bench) startReplicas(ctx context.Context) (_ *product, err error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	p := newProduct()
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	// SQLite, with which PostgreSQL is compared, also syncs its writes.
	database, stop, err := lab.StartPostgres(ctx, dir, "fsync=on")
	if err != nil {
		return nil, err
	}
	p.release = append(p.release, stop)
	var ports []int
	var urls []*url.URL
	for range replicas {
		port, err := lab.FreePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
		urls = append(urls, &url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(port)})
	}
	front, err := proxy.Start(proxy.Alternate(urls))
	if err != nil {
		return nil, err
	}
	p.release = append(p.release, front.Close)
	for i, port := range ports {
		dir := filepath.Join(dir, fmt.Sprintf("replica%d", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("creating a directory for a server: %w", err)
		}
		if i > 0 {
			if err := copyKeys(p.replicas[0].DataDir, filepath.Join(dir, "server")); err != nil {
				return nil, err
			}
		}
		server, err := lab.StartServer(ctx, lab.ServerOptions{
			Binary: b.Server, Dir: dir, Port: port, Database: database, Env: os.Environ(), Args: []string{"--external-url", front.URL},
		})
		if err != nil {
			return nil, err
		}
		p.replicas = append(p.replicas, server)
	}
	shared := *p.replicas[0]
	shared.URL = front.URL
	p.Server = &shared
	return p, nil
}

// copyKeys copies what servers that share a database have in common.
func copyKeys(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return fmt.Errorf("copying the keys of a server: %w", err)
	}
	for _, name := range []string{"admin-token", "master-key"} {
		key, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), key, 0o600)
		}
		if err != nil {
			return fmt.Errorf("copying the keys of a server: %w", err)
		}
	}
	return nil
}

// startDistantStub starts a stub behind a proxy like that of [Bench.startReplicas], because the
// proxy's cost is not the servers'.
func (b *Bench) startDistantStub(ctx context.Context) (*stub, error) {
	s, err := b.startStub(ctx)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(s.url)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("starting the proxy of the stub: %w", err)
	}
	front, err := proxy.Start(proxy.Alternate([]*url.URL{to}))
	if err != nil {
		s.close()
		return nil, err
	}
	s.url, s.release = front.URL, front.Close
	return s, nil
}
