package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"workflowagent/internal/dev/lab/postgres"
)

// postgresEntry starts PostgreSQL with the variables of the image postgres, as far as packaging/compose uses them.
const postgresEntry = `#!/bin/sh
set -e
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$PGDATA"
  chown postgres "$PGDATA"
  chmod 700 "$PGDATA"
  exec su -s /bin/sh postgres -c "exec docker-entrypoint.sh $*"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 \
    --encoding=UTF8 --no-locale --no-sync
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE $POSTGRES_USER" | postgres --single -j postgres
fi
exec "$@" -c listen_addresses='*'
`

// NewPostgresImage returns an image with this machine's PostgreSQL, for tests that use it in place of the image
// postgres.
func NewPostgresImage(ctx context.Context) (*Image, error) {
	bin, err := postgres.Programs()
	if err != nil {
		return nil, err
	}
	image := newImage("workflowagent/postgres")
	image.env = append(image.env, "PGDATA=/var/lib/postgresql/data", "LANG=C")
	root := image.root
	if err := addShell(ctx, root); err != nil {
		return nil, err
	}
	const uid = 999 // as in the image postgres
	root.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\npostgres:x:999:999:postgres:/var/lib/postgresql:/bin/sh\n")
	root.text("/etc/group", "root:x:0:\npostgres:x:999:\n")
	root.dir("/var/lib/postgresql", 0o755, uid)
	root.dir("/var/run/postgresql", 0o755, uid)
	root.script("/usr/local/bin/docker-entrypoint.sh", postgresEntry)
	for _, name := range []string{"initdb", "postgres", "pg_isready", "pg_dump"} {
		if err := root.program(ctx, path.Join(bin, name), filepath.Join(bin, name)); err != nil {
			return nil, fmt.Errorf("adding PostgreSQL to an image: %w", err)
		}
		root.link("/usr/local/bin/"+name, path.Join(bin, name))
	}
	// Debian's directories, which the programs know relative to their own.
	version := filepath.Base(filepath.Dir(bin))
	for _, dir := range []string{filepath.Join(filepath.Dir(bin), "lib"), "/usr/share/postgresql/" + version, "/usr/share/zoneinfo/Etc"} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := root.tree(ctx, dir, dir, notForServers); err != nil {
			return nil, fmt.Errorf("adding PostgreSQL to an image: %w", err)
		}
	}
	return image, nil
}

// notForServers matches the files of PostgreSQL that are large and not needed.
func notForServers(name string) bool {
	for _, prefix := range []string{"bitcode", "pgxs", "llvmjit", "man", "extension/"} {
		if strings.HasPrefix(name, prefix) && !strings.HasPrefix(name, "extension/plpgsql") {
			return true
		}
	}
	return false
}
