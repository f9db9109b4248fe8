export { default } from './list.ts'
