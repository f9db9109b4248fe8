/**
 * What the MSI runs, in JScript, which is a part of Windows Installer: an action that is a program could neither get the key except as an
 * argument, nor say in the log why it failed. Each action gets its data from the action of type 51 before it; JScript is ECMAScript 3.
 */
export const msiActions = `var shell = new ActiveXObject('WScript.Shell');

function InstallAgent() {
  var given = Session.Property('CustomActionData').split('|');
  var folder = given[0], keyFile = given[3];
  var environment = { SVC_URL: given[1], SVC_ENROLLMENT_KEY: given[2] };
  // The service of Windows Installer has the variables of the start of the machine.
  var names = ['SVC_CA_FILE', 'HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY'];
  for (var i = 0; i < names.length; i++) environment[names[i]] = shell.Environment('SYSTEM')(names[i]);
  return run(folder, 'install --yes --no-input' + (keyFile ? ' --enrollment-key "@' + keyFile + '"' : ''), environment);
}

function UninstallAgent() {
  var given = Session.Property('CustomActionData').split('|');
  return run(given[0], 'uninstall --yes --no-input' + (given[1] ? ' --purge' : ''), {});
}

function run(folder, args, values) {
  var environment = shell.Environment('PROCESS');
  try {
    for (var name in values) if (values[name]) environment.Item(name) = values[name];
    var child = shell.Exec('"' + folder + 'svc-agent.exe" ' + args);
    child.StdIn.Close();
    var said = child.StdErr.ReadAll();
    while (child.Status === 0) child.StdOut.ReadAll();
    say(0x04000000, said);
    if (child.ExitCode === 0) return 1;
    say(0x01000000, reason(said) || 'it ended with ' + child.ExitCode);
  } catch (error) {
    say(0x01000000, 'svc-agent.exe cannot be run: ' + (error.message || error.number));
  } finally {
    if (values.SVC_ENROLLMENT_KEY) environment.Remove('SVC_ENROLLMENT_KEY');
  }
  return 3;
}

function reason(said) {
  var at = said.lastIndexOf('Error: ');
  return at === -1 ? said : said.substring(at);
}

function say(kind, text) {
  var record = Session.Installer.CreateRecord(1);
  record.StringData(0) = 'svc-agent: [1]';
  record.StringData(1) = text;
  Session.Message(kind, record);
}
`
