package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const packBinary = "policy-pack"

// PolicyPack returns the path of the tests' policy pack, a program that `pulumi policy analyze`
// accepts as a pack, building it if necessary. Its source is in internal/dev/tools/pulumi/pack. It is
// built after the CLI, with which it shares its packages.
func PolicyPack(ctx context.Context, progress io.Writer) (string, error) {
	if _, err := PulumiCLI(ctx, progress); err != nil {
		return "", err
	}
	dir, err := buildPrograms(ctx, progress, "pulumi", packBinary, []program{{
		name: packBinary, pkg: "./pack", what: "the policy pack", expect: "about 30 s",
	}})
	return filepath.Join(dir, packBinary), err
}

// WritePolicyPack makes dir a policy pack of the runtime "executable", which `pulumi policy publish`
// accepts. program is the result of [PolicyPack], and definition the pack's pack.json, or "" for the pack
// "lab" 1.0.0, whose mandatory policy no-bad-content forbids resources lab:File with the content "bad".
func WritePolicyPack(dir, program, definition string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing a policy pack: %w", err)
	}
	policy := filepath.Join(dir, "policy")
	if err := os.Remove(policy); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing a policy pack: %w", err)
	}
	if err := os.Link(program, policy); err != nil {
		data, err := os.ReadFile(program)
		if err != nil {
			return fmt.Errorf("writing a policy pack: %w", err)
		}
		if err := os.WriteFile(policy, data, 0o755); err != nil {
			return fmt.Errorf("writing a policy pack: %w", err)
		}
	}
	files := map[string]string{"PulumiPolicy.yaml": "runtime: executable\n"}
	if definition != "" {
		files["pack.json"] = definition
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing a policy pack: %w", err)
		}
	}
	return nil
}

// InstallLanguageHost makes clients with a Pulumi home find the language host of such packs, which is the runner
// under another name.
func InstallLanguageHost(home, runner string) error {
	dir := filepath.Join(home, "plugins", "language-executable-v0.0.2")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("installing the language host: %w", err)
	}
	err := os.Symlink(runner, filepath.Join(dir, "pulumi-language-executable"))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("installing the language host: %w", err)
	}
	return nil
}
