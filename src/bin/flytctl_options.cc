// The options of each of flytctl's commands.
#include "bin/flytctl_commands.h"

namespace flyt::ctl {
namespace {

Command add_named(const Command& app, std::string& name, const char* command, const char* about,
                  const char* type, bool required, const char* what = "Its name") {
  const Command added = app.add_command(command, about);
  added.add_option("name", name, what).required(required).type_name(type);
  return added;
}

void add_sizes(const Command& command, cli::CtlOptions& options, bool required) {
  const char* kept = required ? "" : "; if missing it stays as it is";
  command
      .add_option("--sms", options.sms,
                  std::string("Multiprocessors, rounded up to whole groups") + kept)
      .required(required)
      .type_name("N");
  command.add_option("--memory", options.memory, std::string("Memory, such as 512M or 20G") + kept)
      .required(required)
      .type_name("SIZE");
}

void add_create(const Command& app, cli::CtlOptions& options) {
  const Command create = app.add_command("create", "Make a lease at a node and start its server");
  create.add_option("name", options.lease, "How it is to be called").required();
  add_sizes(create, options, true);
  create.add_option("--gpu", options.gpu, "Which GPU; the first with room if missing")
      .type_name("N");
  create.add_option("--mode", options.mode, "Only on a GPU in this mode; if missing on any")
      .one_of({"isolated", "shared"});
  create.add_option("--priority", options.priority, "From -1000 to 1000: higher goes first")
      .show_default();
  create
      .add_option("--expires-in", options.expires_in,
                  "Ends by itself after this: 90s, 12h, 7d; if missing never")
      .type_name("TIME");
  create.add_option("--label", options.labels, "A note for whoever looks; repeatable")
      .type_name("KEY=VALUE")
      .take_all();
}

void add_vm_set(const Command& vm, Options& options) {
  const Command set = add_named(vm, options.cluster.name, "set",
                                "Say what a VM gets; what is not named stays as it is", "VM", true);
  cli::ClusterOptions& cluster = options.cluster;
  add_sizes(set, options.node, false);
  set.add_option("--sms-min", cluster.sms_min,
                 "Shrinks to so many when it is little used; 0: never")
      .type_name("N");
  set.add_option("--sms-max", cluster.sms_max, "Grows to so many when it is much used; 0: never")
      .type_name("N");
  set.add_option("--address", cluster.vm_address, "Its IP address").type_name("IP");
  set.add_option("--host", cluster.host, "The machine that it runs on").type_name("HOST");
  set.add_option(
         "--policy", cluster.policy,
         "Where its virtual GPU goes; default, as of a new VM: placement.policy of the cluster")
      .one_of({"host-first", "pack", "spread", "default"});
  set.add_option("--mode", cluster.mode, "Only on a GPU in this mode; a new VM: any")
      .one_of({"isolated", "shared", "any"});
  set.add_option("--priority", cluster.priority,
                 "From -1000 to 1000: higher goes first; a new VM: 0");
  set.add_option("--label", cluster.labels,
                 "A note, by which --apart goes; repeatable, and all of them are set anew")
      .type_name("KEY=VALUE")
      .take_all();
  set.add_option("--apart", cluster.apart,
                 "On other nodes than VMs with the same value of this label; repeatable, and all "
                 "of them are"
                 " set anew")
      .type_name("KEY")
      .take_all();
  set.add_flag(
      "--share-sms,!--no-share-sms", cluster.share_sms,
      "May share multiprocessors, on GPUs that give out more than they have; a new VM does not");
  set.add_flag("--keep,!--no-keep", cluster.keep,
               "Keeps it when no program uses it; a new VM does not");
}

void add_authority(const Command& app, cli::AuthorityOptions& options) {
  const Command ca = app.add_command("ca", "Certificates: an authority for a cluster");
  ca.require_command();
  const Command init = ca.add_command("init", "Make an authority");
  init.add_option("--name", options.name, "What it is called").show_default("flyt");
  const Command issue = add_named(ca, options.name, "issue", "Make a certificate", "NAME", true);
  issue.add_option("--role", options.role, "What its holder may do")
      .required()
      .one_of({"viewer", "operator", "admin", "node", "vm"});
  issue.add_option("--host", options.hosts, "DNS name or address at which it serves; repeatable")
      .take_all();
  const Command revoke = add_named(ca, options.name, "revoke",
                                   "Let a certificate's holder in no longer", "NAME", true);
  init.add_option("--days", options.authority_days,
                  "How long it is valid, and with it all that it signs")
      .range(1, 36500)
      .show_default();
  issue.add_option("--days", options.days, "How long it is valid").range(1, 36500).show_default();
  for (const Command& command : {init, issue, revoke}) {
    command.add_option("--dir", options.folder, "The authority's folder")
        .show_default()
        .type_name("DIR");
  }
}

void add_machine(const Command& command, cli::EnrolOptions& options) {
  command.add_option("--role", options.role, "What the machine is")
      .required()
      .one_of({"node", "vm"});
}

void add_servers(const Command& command, cli::EnrolOptions& options) {
  command.add_option("--at", options.servers, "A cluster manager's enrol.listen; repeatable")
      .required()
      .type_name("HOST:PORT")
      .take_all();
}

void add_enrolment(const Command& app, cli::EnrolOptions& options) {
  const Command tokens =
      app.add_command("enrol-token", "Tokens with which machines get their certificates");
  tokens.require_command();
  const Command create =
      add_named(tokens, options.name, "create", "Make one, for one machine", "NAME", true);
  add_machine(create, options);
  create.add_option("--host", options.hosts, "DNS name or address at which it serves; repeatable")
      .take_all();
  create
      .add_option(
          "--lasts", options.lasts,
          "How long it admits the machine: 15m, 1d; if missing enrol.token_lasts of the cluster")
      .type_name("TIME");
  tokens.add_command("list", "List them; their secrets are not known any more");
  add_named(tokens, options.name, "revoke", "Let one admit nobody any more", "ID", true,
            "Its number, as list tells");
  const Command enrol = add_named(app, options.name, "enrol",
                                  "Get this machine's certificate, for a token", "NAME", true);
  add_machine(enrol, options);
  add_servers(enrol, options);
  enrol
      .add_option("--token-file", options.token_file,
                  "A file with the token, or - for the standard input; if missing FLYT_ENROL_TOKEN")
      .type_name("FILE");
  enrol
      .add_option("--dir", options.folder,
                  "Where NAME.key, NAME.crt and ca.crt go; made if it is not there")
      .show_default()
      .type_name("DIR");
  const Command renew =
      add_named(app, options.name, "renew", "Get this machine's next certificate, if it is time",
                "NAME", true);
  add_servers(renew, options);
  renew.add_option("--dir", options.folder, "Where NAME.key, NAME.crt and ca.crt are")
      .show_default()
      .type_name("DIR");
  renew
      .add_option(
          "--within", options.within,
          "It is time when it ends within this: 30d; if missing in the last third of its life")
      .type_name("TIME");
  renew
      .add_option("--then", options.then,
                  "What a shell does once there is a new one; if missing nothing")
      .type_name("COMMAND");
}

void add_configs(const Command& app, cli::ConfigOptions& options) {
  const Command config = app.add_command("config", "Configurations of the managers");
  config.require_command();
  const Command check = config.add_command("check", "Say whether files are right");
  check
      .add_option(
          "--of", options.program,
          "Whose they are; if missing as they are called (node.toml), else a cluster manager's")
      .one_of({"cluster", "node", "client"});
  const Command import = config.add_command(
      "import", "Make configurations of those of the Flyt that this one descends from");
  import.add_option("--out", options.out, "The folder for them; nothing is written over")
      .show_default()
      .type_name("DIR");
  import
      .add_option("--host", options.host,
                  "A node's name, as the cluster manager reaches it; if missing this machine's")
      .type_name("HOST");
  import.add_option("--port", options.port, "The cluster manager's").range(1, 65535).show_default();
  for (const Command& command : {check, import}) {
    command.add_option("file", options.files, "TOML files").required().type_name("FILE");
  }
}

}  // namespace

void add_global(const Command& app, Options& options) {
  app.add_option("--cluster", options.cluster_flag,
                 "A cluster manager: unix:///PATH or HOST:PORT, or several with commas; if missing"
                 " FLYT_CLUSTER, else unix:///run/flyt-cluster/cluster.sock")
      .type_name("ADDR");
  app.add_option("--node", options.node_flag,
                 "A node manager: unix:///PATH or HOST:PORT; if missing FLYT_NODE, else"
                 " unix:///run/flyt/node.sock")
      .type_name("ADDR");
  app.add_option("--cert", options.cert,
                 "This user's certificate; if missing FLYT_CLUSTER_CERT or FLYT_NODE_CERT")
      .type_name("FILE");
  app.add_option("--key", options.key, "Its key; if missing FLYT_CLUSTER_KEY or FLYT_NODE_KEY")
      .type_name("FILE");
  app.add_option("--ca", options.ca,
                 "Who signed the other side; if missing FLYT_CLUSTER_CA or FLYT_NODE_CA")
      .type_name("FILE");
  app.add_option("--config", options.config,
                 "Addresses and certificates, as TOML; if missing FLYTCTL_CONFIG, else"
                 " ~/.config/flyt/flytctl.toml, else /etc/flyt/flytctl.toml")
      .type_name("FILE");
  app.add_flag("--json", options.node.json, "One JSON object a line");
}

void add_node_commands(const Command& app, Options& options) {
  cli::CtlOptions& node = options.node;
  add_named(app, node.lease, "describe",
            "Show the cluster, one VM or one node; of a node: it, or one lease", "NAME", false,
            "Of the VM, node or lease; if missing the cluster, or the node that is asked");
  for (const auto& [name, about] : {std::pair("leases", "List the leases, or those of one VM"),
                                    std::pair("sessions", "List client processes")}) {
    const Command command = add_named(app, node.lease, name, about, "NAME", false,
                                      "Of a VM, or of a lease of a node; if missing all");
    command.add_option("--on", options.cluster.on, "Of this node alone; if missing of all")
        .type_name("NODE");
    command.add_flag("--watch", options.cluster.watch, "The list again after each change");
  }
  add_create(app, node);
  const Command resize = add_named(app, node.lease, "resize",
                                   "Change a virtual GPU while its programs run", "NAME", true);
  add_sizes(resize, node, false);
  resize.add_flag("--when-free", node.when_free,
                  "Of a node: less memory than is used holds when that much is free");
  app.add_command("defrag", "Of a node: move leases whose groups lie apart side by side");
  add_named(app, node.lease, "release", "End a virtual GPU, its sessions and its server", "NAME",
            true);
  const Command token =
      add_named(app, node.lease, "token", "Issue a token for clients of a lease", "LEASE", true);
  token
      .add_option("--lasts", node.lasts,
                  "How long it admits clients: 60, 5m; if missing leases.token_seconds of the node")
      .type_name("TIME");
  token.add_flag("--export", node.exports, "As settings for a shell");
  token.add_flag("--tcp", node.tcp, "With --export: the address for other machines");
  add_named(app, node.lease, "drain", "Make no new leases; of a cluster's node: free it, too",
            "NODE", false, "Of a cluster's node; without it the node that is asked drains");
  app.add_command("undrain", "Make new leases at a node again");
  app.add_command("forget-leaders",
                  "Of a node: take orders of cluster managers again that were replaced");
  const Command events = app.add_command("events", "Show what happened");
  events.add_flag("--follow", node.follow, "And what happens from now on");
  events
      .add_option("--after", node.after,
                  "Only those after this number; if missing all that are kept")
      .type_name("N");
  const Command top = app.add_command("top", "Show GPUs and who has them, again and again");
  top.add_option("--interval", node.interval, "Seconds between pages")
      .range(1, 3600)
      .show_default();
  top.add_option("--pages", node.pages, "End after so many; 0: go on").show_default();
  app.add_command("health", "Say what is wrong");
}

void add_cluster_commands(const Command& app, Options& options) {
  cli::ClusterOptions& cluster = options.cluster;
  for (const auto& [name, about] : {std::pair("nodes", "List the nodes, or show one"),
                                    std::pair("gpus", "List the GPUs, of all nodes or one"),
                                    std::pair("vms", "List the VMs, or show one")}) {
    add_named(app, cluster.name, name, about, "NAME", false, "Of the one to show; if missing all")
        .add_flag("--watch", cluster.watch, "The list again after each change");
  }
  const Command vm = app.add_command("vm", "Say which VMs there are, and what they get");
  vm.require_command();
  add_vm_set(vm, options);
  add_named(vm, cluster.name, "rm", "Forget a VM", "VM", true)
      .add_flag("--force", cluster.force, "Even if it has a virtual GPU");
  add_named(vm, cluster.name, "import", "Set VMs of a JSON file, or of Flyt's database exported",
            "FILE", true, "JSON: one VM a line, or a list of all");
  const Command node = app.add_command("node", "Say which nodes there are");
  node.require_command();
  add_named(node, cluster.name, "rm", "Forget a node that is lost", "NODE", true);
  add_named(app, cluster.name, "cordon", "Place nothing new on a node", "NODE", true);
  add_named(app, cluster.name, "uncordon", "Take a node into use again", "NODE", true);
  add_named(app, cluster.name, "explain", "Say why a VM got what it got, or why it waits", "VM",
            true);
  app.add_command("audit", "Show who did what")
      .add_option("--after", cluster.after,
                  "Only what comes after this number; if missing all that is kept")
      .type_name("N");
  add_authority(app, options.authority);
  add_enrolment(app, options.enrol);
  add_configs(app, options.configs);
}

void add_flyt_commands(const Command& app, Options& options) {
  app.add_command("list-vms", "VMs, as an earlier Flyt listed them");
  app.add_command("list-servernodes", "GPUs of nodes, as an earlier Flyt listed them");
  app.add_command("list-virt-servers", "Virtual GPUs, as an earlier Flyt listed them");
  const Command change = app.add_command("change-config", "resize, as an earlier Flyt spelled it");
  const Command migrate = app.add_command("migrate", "Not possible yet");
  const Command automatic = app.add_command("migrate-auto", "Not possible yet");
  change.add_option("-i,--ip", options.cluster.name, "The VM's address or name").required();
  change.add_option("-s,--sm-cores", options.cluster.sms,
                    "Multiprocessors; if missing they stay as they are");
  change.add_option("-m,--memory", options.cluster.memory,
                    "Memory in MB; if missing it stays as it is");
  // Whatever stands behind them.
  for (const Command& command : {migrate, automatic}) command.allow_anything();
}

}  // namespace flyt::ctl
