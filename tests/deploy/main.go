// Command deploycheck reads a deployment file as the tool does that it is written for, and prints what the tool understood
// as JSON. An unknown key, a wrong type or a reference to nothing ends it with the tool's own message.
//
//	deploycheck kind k8s/kind/cluster.yaml
//	deploycheck compose docker-compose.yml PROFILE
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "kind":
		return kind(args[1])
	case len(args) == 3 && args[0] == "compose":
		return compose(args[1], args[2])
	}
	return fmt.Errorf("usage: deploycheck kind FILE | deploycheck compose FILE PROFILE")
}

// kind decodes as kind does: strictly, into its own types, then its defaults.
func kind(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	var cluster v1alpha4.Cluster
	if err := decoder.Decode(&cluster); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	v1alpha4.SetDefaultsCluster(&cluster)
	return json.NewEncoder(os.Stdout).Encode(cluster)
}

// compose does what `docker compose --profile PROFILE config` does; variables come from the environment only.
func compose(path, profile string) error {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithOsEnv, cli.WithProfiles([]string{profile}))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(project)
}
