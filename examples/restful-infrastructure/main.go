// Command restful-infrastructure is an example of a service that manages infrastructure through the
// Deployments API. Each site of its API is a stack: creating, changing and deleting a site starts a
// deployment, and the service itself runs no pulumi.
//
//	POST   /sites       {"id": "blog", "content": "Hello"} creates a site
//	GET    /sites/{id}  returns the site's state and outputs
//	POST   /sites/{id}  {"content": "Goodbye"} changes the site
//	DELETE /sites/{id}  destroys the site and deletes its stack
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "restful-infrastructure:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("restful-infrastructure", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:8090", "address to listen on")
	org := flags.String("org", "organization", "organization of the stacks")
	project := flags.String("project", "site", "project of the stacks, as in the program's Pulumi.yaml")
	file := flags.String("settings", "settings.json", "file with the deployment settings of every site")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client := &client{
		url: os.Getenv("PULUMI_BACKEND_URL"), token: os.Getenv("PULUMI_ACCESS_TOKEN"), org: *org, project: *project,
		http: &http.Client{Timeout: time.Minute},
	}
	if client.url == "" || client.token == "" {
		return errors.New("set PULUMI_BACKEND_URL and PULUMI_ACCESS_TOKEN")
	}
	settings, err := readSettings(*file)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: *listen, Handler: newHandler(client, settings), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() {
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(patience) // the process is about to exit
	})
	fmt.Println("listening on http://" + *listen)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func readSettings(file string) (map[string]any, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the deployment settings: %w", err)
	}
	var settings map[string]any
	if err := json.Unmarshal(data, &settings); err != nil {
		return nil, fmt.Errorf("parsing the deployment settings in %s: %w", file, err)
	}
	return settings, nil
}
