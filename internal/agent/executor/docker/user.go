package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// maxUserFile bounds an image's user database, in bytes.
const maxUserFile = 1 << 20

// giveToUser gives the job's directory to the image's user. The engine makes volumes for root.
func (e *Executor) giveToUser(ctx context.Context, engine *client.Client, j job, img image) error {
	name, group, _ := strings.Cut(img.user, ":")
	if j.Shared != "" || name == "" || name == "0" || name == "root" {
		return nil
	}
	user, err := lookUpUser(ctx, engine, j, name, group)
	if err != nil {
		return err
	}
	dir, base := j.parent()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{Typeflag: tar.TypeDir, Name: base + "/", Mode: 0o700, Uid: user.uid, Gid: user.gid, ModTime: time.Now()}
	if err := errors.Join(w.WriteHeader(header), w.Close()); err != nil {
		return err
	}
	_, err = engine.CopyToContainer(ctx, j.Name, client.CopyToContainerOptions{DestinationPath: dir, Content: &archive})
	return err
}

type imageUser struct{ uid, gid int }

// lookUpUser returns the numbers of the image's user and group by the engine's rules.
func lookUpUser(ctx context.Context, engine *client.Client, j job, name, group string) (u imageUser, err error) {
	u.uid, err = strconv.Atoi(name)
	numeric := err == nil
	if !numeric || group == "" {
		passwd, err := readFile(ctx, engine, j.Name, "/etc/passwd", maxUserFile)
		if err != nil && !numeric {
			return u, err
		}
		fields := userEntry(string(passwd), func(f []string) bool { return f[0] == name || (numeric && f[2] == name) }, 4)
		switch {
		case fields != nil:
			u.uid, err = strconv.Atoi(fields[2])
			if err == nil {
				u.gid, err = strconv.Atoi(fields[3])
			}
			if err != nil {
				return u, fmt.Errorf("reading the image's /etc/passwd: %w", err)
			}
		case !numeric:
			return u, errors.New("the image's /etc/passwd does not have it")
		}
	}
	if group == "" {
		return u, nil
	}
	if u.gid, err = strconv.Atoi(group); err == nil {
		return u, nil
	}
	groups, err := readFile(ctx, engine, j.Name, "/etc/group", maxUserFile)
	if err != nil {
		return u, err
	}
	fields := userEntry(string(groups), func(f []string) bool { return f[0] == group }, 3)
	if fields == nil {
		return u, errors.New("the image's /etc/group does not have its group")
	}
	if u.gid, err = strconv.Atoi(fields[2]); err != nil {
		return u, fmt.Errorf("reading the image's /etc/group: %w", err)
	}
	return u, nil
}

func userEntry(data string, match func([]string) bool, fields int) []string {
	for line := range strings.Lines(data) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= fields && match(f) {
			return f
		}
	}
	return nil
}

func readFile(ctx context.Context, engine *client.Client, containerName, path string, limit int64) ([]byte, error) {
	copied, err := engine.CopyFromContainer(ctx, containerName, client.CopyFromContainerOptions{SourcePath: path})
	if err != nil {
		return nil, err
	}
	defer copied.Content.Close()
	archive := tar.NewReader(copied.Content)
	header, err := archive.Next()
	if err != nil {
		return nil, fmt.Errorf("reading %s of the container: %w", path, err)
	}
	if header.Typeflag != tar.TypeReg || header.Size > limit {
		return nil, fmt.Errorf("reading %s of the container: not a regular file of at most %d bytes", path, limit)
	}
	return io.ReadAll(archive)
}
