// Command pack is a policy pack for tests: the analyzer of a required pack, of pulumi policy
// publish and of pulumi policy analyze. Its policies are in the file pack.json next to the program;
// without that file it is the pack "lab", whose mandatory policy "no-bad-content" forbids files with
// the content "bad".
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve() error {
	p, err := load(filepath.Join(filepath.Dir(os.Args[0]), "pack.json"))
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	stopped := make(chan bool)
	go func() {
		<-ctx.Done()
		close(stopped)
	}()
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: stopped,
		Init: func(s *grpc.Server) error {
			pulumirpc.RegisterAnalyzerServer(s, &analyzer{pack: p})
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("starting a server: %w", err)
	}
	fmt.Println(handle.Port)
	return <-handle.Done
}
