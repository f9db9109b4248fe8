/** Addresses of this machine, of its neighbors, and all other kinds that are not public. */
const addresses = [
  '127.0.0.1',
  '127.1.2.3',
  '0.0.0.0',
  '10.0.0.1',
  '10.255.255.254',
  '172.16.0.1',
  '172.31.255.254',
  '192.168.0.1',
  '169.254.169.254',
  '169.254.170.2',
  '100.64.0.1',
  '100.127.255.254',
  '192.0.0.1',
  '192.0.2.1',
  '198.18.0.1',
  '198.51.100.7',
  '203.0.113.9',
  '224.0.0.1',
  '240.0.0.1',
  '255.255.255.255',
]

const bytesOf = (address: string): number[] => address.split('.').map(Number)
const numberOf = (address: string): number => bytesOf(address).reduce((sum, byte) => sum * 256 + byte, 0)
const hex = (value: number, digits: number) => value.toString(16).padStart(digits, '0')
const words = (address: string): string => {
  const [a, b, c, d] = bytesOf(address).map((byte) => hex(byte, 2))
  return `${a}${b}:${c}${d}`
}

/** The spellings of an IPv4 address in the host of a URL. */
const spellings: readonly ((address: string) => string)[] = [
  (it) => it,
  (it) => `${it}.`,
  (it) => String(numberOf(it)),
  (it) => `0x${hex(numberOf(it), 8)}`,
  (it) => `0${numberOf(it).toString(8)}`,
  (it) =>
    bytesOf(it)
      .map((byte) => `0x${hex(byte, 2)}`)
      .join('.'),
  (it) =>
    bytesOf(it)
      .map((byte) => `0${byte.toString(8)}`)
      .join('.'),
  (it) => it.replace(/\d/g, (digit) => String.fromCodePoint(0xff10 + Number(digit))),
  (it) => it.replaceAll('.', '\u3002'),
  (it) => it.replace(/./g, (sign) => `%${hex(sign.codePointAt(0)!, 2)}`),
  (it) => `[::ffff:${it}]`,
  (it) => `[::ffff:${words(it)}]`,
  (it) => `[64:ff9b::${words(it)}]`,
  (it) => `[2002:${words(it)}::1]`,
  (it) => `[::${words(it)}]`,
]

const six = [
  '::',
  '::1',
  '0:0:0:0:0:0:0:1',
  'fc00::1',
  'fd12:3456:789a::1',
  'fe80::1',
  'febf::1',
  'fec0::1',
  'ff02::1',
  '2001:db8::1',
  '2001::1',
  '100::1',
  'fd00:ec2::254',
  '64:ff9b:1::1',
  '3fff::1',
  '5f00::1',
]

/** Names, and the addresses they resolve to. */
export const names: Readonly<Record<string, readonly string[]>> = {
  localhost: ['127.0.0.1', '::1'],
  'app.localhost': ['127.0.0.1'],
  'metadata.google.internal': ['169.254.169.254'],
  'printer.local': ['192.168.1.9'],
  'inside.example.com': ['10.1.2.3'],
  '127.0.0.1.nip.example': ['127.0.0.1'],
  'half.example.com': ['93.184.215.14', '10.0.0.1'],
  'half-six.example.com': ['2606:2800:21f:cb07:6820:80da:af6b:8b2c', 'fd00::1'],
  'mapped.example.com': ['::ffff:10.0.0.1'],
  'xn--bcher-kva.example': ['172.16.3.4'],
  'nothing.example.com': [],
}

const written = [
  ...Object.keys(names),
  'LOCALHOST',
  'localhost.',
  'ｌｏｃａｌｈｏｓｔ',
  'ⓛⓞⓒⓐⓛⓗⓞⓢⓣ',
  'l\u00adocalhost',
  'bücher.example',
]

const places = [
  'https://127.0.0.1:22',
  'https://10.0.0.1:8443/a?b#c',
  'https://[::1]:6379',
  'https://127.0.0.1:0',
  'https://user:secret@127.0.0.1/',
  'https://93.184.215.14@10.0.0.1/',
  'https://127.0.0.1\\@93.184.215.14/',
  'https:127.0.0.1',
  'https:\\\\127.0.0.1\\',
  'https:///127.0.0.1/',
  ' https://127.0.0.1 ',
  'https://127.0.0.1\t',
  'https://127.1',
  'https://10.1',
  'https://0',
  'https://0x7f.1',
  'https://017700000001',
  'https://1.1.0x7f000001',
]

/** URLs to which a stranger may not send the service. */
export const unsafeUrls: readonly string[] = [
  ...addresses.flatMap((address) => spellings.map((spell) => `https://${spell(address)}/hook`)),
  ...six.map((address) => `https://[${address}]/hook`),
  ...written.map((host) => `https://${host}/hook`),
  ...places,
  // Without TLS only addresses that the operator allowed are reached.
  'http://93.184.215.14/',
  'http://outside.example.com/',
]
