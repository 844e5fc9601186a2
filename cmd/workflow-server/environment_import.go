package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/environments"
	definitions "workflowagent/internal/server/environments/source"
	"workflowagent/internal/termtext"
)

func newEnvironmentImportCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FOLDER",
		Short: "Make environments equal to the definitions in a folder",
		Long: `Make the environments of an organization equal to the definitions in the files
PROJECT/ENVIRONMENT.yaml of FOLDER. Missing environments are created, and those whose definition
differs get a new revision. If one definition has an error, nothing changes. Environments that
FOLDER does not contain remain, unless --delete is set.

Secrets must be ciphertexts of the same environment, as "pulumi env get" prints them. With
--encrypt-secrets, they may be plain text, which the server encrypts. The server must be running.`,
		Example: `  workflow-server environment import ./environments --org acme --dry-run
  workflow-server environment import ./environments --org acme --encrypt-secrets`,
		Args: operator.OneArg("the folder with the definitions"),
	}
	var q admin.EnvironmentFiles
	cmd.Flags().StringVar(&q.Organization, "org", "", "organization (default: the only one)")
	cmd.Flags().BoolVar(&q.DryRun, "dry-run", false, "print what would change, and change nothing")
	cmd.Flags().BoolVar(&q.EncryptSecrets, "encrypt-secrets", false, "encrypt secrets that are plain text, instead of refusing them")
	cmd.Flags().BoolVar(&q.Delete, "delete", false, "delete the environments that the folder does not contain")
	asJSON := jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) (err error) {
		if q.Files, err = readDefinitions(cmd.Flags().Arg(0)); err != nil {
			return err
		}
		done, err := admin.ImportEnvironments.Do(ctx, c, q)
		if err != nil {
			return err
		}
		if *asJSON {
			err = operator.PrintJSON(cmd.OutOrStdout(), done)
		} else {
			err = printImport(cmd.OutOrStdout(), done)
		}
		if err == nil && done.Failed() {
			err = errors.New("nothing was changed, because of the problems above")
		}
		return err
	})
}

// readDefinitions returns the files of a folder that can define environments.
func readDefinitions(folder string) (files []definitions.File, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the definitions: %w", err)
	}
	defer root.Close()
	size := int64(0)
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".":
			return nil
		case entry.IsDir():
			if !definitions.Wanted(path + "/") {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular() || !definitions.Wanted(path):
			return nil
		}
		f, err := root.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, environments.MaxDefinition+1))
		switch size += int64(len(text)); {
		case err != nil:
			return err
		case len(text) > environments.MaxDefinition:
			return fmt.Errorf("%s has more than %d MiB, the limit of a definition", path, environments.MaxDefinition>>20)
		case size > definitions.MaxBytes:
			return fmt.Errorf("the definitions have more than %d MiB in all", definitions.MaxBytes>>20)
		}
		files = append(files, definitions.File{Path: path, Definition: string(text)})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the definitions: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("the folder %s contains no file PROJECT/ENVIRONMENT.yaml", folder)
	}
	return files, nil
}

// The lengths of a line of a difference and of a problem, in bytes.
const maxShownLine, maxShownProblem = 200, 500

// printImport prints what an import does, or has done.
func printImport(w io.Writer, done admin.ImportedEnvironments) error {
	var out strings.Builder
	line := func(format string, args ...any) {
		out.WriteString(termtext.OneLine(fmt.Sprintf(format, args...), maxShownLine) + "\n")
	}
	kept := 0
	for _, s := range done.Steps {
		if s.Action == definitions.Keep && len(s.Problems) == 0 {
			kept++
			continue
		}
		line("%s %s", s.Action, s.Environment)
		for _, p := range s.Problems {
			out.WriteString("    problem: " + termtext.OneLine(p, maxShownProblem) + "\n")
		}
		for _, d := range s.Difference { // with its indentation
			text := string(termtext.Plain(nil, []byte(d)))
			out.WriteString("    " + strings.ToValidUTF8(text[:min(len(text), maxShownLine)], "") + "\n")
		}
	}
	for _, path := range done.Ignored {
		line("ignored %s: it is not in the folder of a project", path)
	}
	for n, name := range done.Others {
		if n == maxOthers {
			line("and %d others are not in the folder", len(done.Others)-n)
			break
		}
		line("remains %s: the folder does not contain it", name)
	}
	verb := "Would change"
	if done.Applied {
		verb = "Changed"
	}
	line("%s: %d created, %d changed, %d deleted, %d equal.", verb, done.Count(definitions.Create), done.Count(definitions.Change), done.Count(definitions.Delete), kept)
	_, err := io.WriteString(w, out.String())
	return err
}

// maxOthers is the number of environments that are named although nothing happens to them.
const maxOthers = 20
