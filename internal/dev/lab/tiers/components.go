package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/storetest"
)

// shuffle are the arguments with which go test runs the tests of a package in a random order, which it prints.
var shuffle = []string{"-shuffle=on"}

// enginePackages are the packages that require a Docker Engine.
var enginePackages = []string{product + "/agent/executor/docker", product + "/dev/lab"}

// clusterPackages are the packages whose tests require a Kubernetes cluster.
var clusterPackages = []string{product + "/agent/executor/kubernetes", product + "/dev/lab/cluster"}

const (
	product        = "workflowagent/internal"
	serverPackages = product + "/server"
)

// packages returns the packages of a pattern, except the end-to-end tests and those in without.
func (s *suite) packages(ctx context.Context, pattern string, without ...string) ([]string, error) {
	list := exec.CommandContext(ctx, "go", "list", pattern)
	list.Dir = s.root
	listed, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages: %w", err)
	}
	return slices.DeleteFunc(strings.Fields(string(listed)), func(p string) bool {
		return strings.HasPrefix(p, product+"/dev/e2e/") || slices.Contains(without, p)
	}), nil
}

// unit tests the packages that no other tier tests. If PostgreSQL is installed, the tier postgres tests those of the
// server.
func (s *suite) unit(ctx context.Context, out io.Writer) error {
	packages, err := s.packages(ctx, "./...", slices.Concat(enginePackages, clusterPackages, racedOnBoth(), racedOnOne())...)
	if err != nil {
		return err
	}
	if postgresMissing(ctx) == "" {
		packages = slices.DeleteFunc(packages, func(p string) bool { return strings.HasPrefix(p, serverPackages) })
	}
	return s.goTest(ctx, out, s.env, slices.Concat(shuffle, packages)...)
}

// postgres tests the server's packages. The tier race tests some of them with SQLite.
func (s *suite) postgres(ctx context.Context, out io.Writer) error {
	both, err := s.packages(ctx, "./internal/server/...", slices.Concat(racedOnBoth(), racedOnOne())...)
	if err != nil {
		return err
	}
	one := slices.DeleteFunc(racedOnOne(), func(p string) bool { return !s.usesPostgres(p) })
	return s.withPostgres(ctx, func(env []string) error {
		return errors.Join(
			s.goTest(ctx, out, append(slices.Clone(env), storetest.OnlyPostgresEnv+"=1"), slices.Concat(shuffle, one)...),
			s.goTest(ctx, out, env, slices.Concat(shuffle, both)...),
		)
	})
}

// needsPostgres matches tests with PostgreSQL.
var needsPostgres = regexp.MustCompile(`storetest\.(Each|Postgres)`)

func (s *suite) usesPostgres(p string) bool {
	files, _ := filepath.Glob(filepath.Join(s.root, "internal", strings.TrimPrefix(p, product), "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err != nil || needsPostgres.Match(text)
	})
}

// onPostgres matches the names of subtests that use PostgreSQL.
const onPostgres = "^postgres$"

func (s *suite) raced(ctx context.Context, out io.Writer) error {
	test := func(env []string) error {
		// Of those on both, one package takes most of the time, on one processor.
		return together(ctx, out,
			func(ctx context.Context, out io.Writer) error {
				return s.raceTest(ctx, out, env, slices.Concat(shuffle, []string{"-skip", "/" + onPostgres}, racedOnOne())...)
			},
			func(ctx context.Context, out io.Writer) error {
				err := s.raceTest(ctx, out, env, slices.Concat(shuffle, racedOnBoth())...)
				for name, test := range partly {
					err = errors.Join(err, s.raceTest(ctx, out, env, "-run", "^"+test+"$", name))
				}
				return err
			},
		)
	}
	if postgresMissing(ctx) != "" {
		return test(s.env)
	}
	return s.withPostgres(ctx, test) // one server for all, because each of the packages would start its own
}

// withPostgres calls test with the environment of tests that use a new PostgreSQL.
func (s *suite) withPostgres(ctx context.Context, test func(env []string) error) error {
	dir, err := os.MkdirTemp(s.dir, "pg")
	if err != nil {
		return err
	}
	dsn, stop, err := postgres.StartInMemory(ctx, dir)
	if err != nil {
		return err
	}
	defer stop()
	return test(append(slices.Clone(s.env), storetest.PostgresEnv+"="+dsn))
}
